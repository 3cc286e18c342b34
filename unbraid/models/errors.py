"""The error of model files."""

from __future__ import annotations

from ..errors import UnbraidError


class ModelError(UnbraidError):
    """A model's files cannot be found, downloaded or read; the message says which, and what to do."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable
        """Whether it is for want of a way to where they are."""
