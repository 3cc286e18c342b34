"""The error of model files."""

from __future__ import annotations

from ..errors import UnbraidError


class ModelError(UnbraidError):
    """A model's files cannot be found, downloaded or read; the message says which, and what to do."""
