"""Bounds on what hostile output can make a parser hold."""

from __future__ import annotations

from .fast_import import frozen


@frozen
class Limits:
    depth: int = 512
    """How deep arguments may nest and still be checked. (Python's own `json` gives up somewhere before 1,000.)"""
    name: int = 256
    """Characters of a tool's name, an id, or a key of a call object."""
    number: int = 4096
    """Characters of one number."""
    arguments: int = 1024
    """Arguments of one call whose names are remembered, to tell which one a value without a name is for."""
    ids: int = 64
    """Calls of one response that keep the ids that the model gave them. Further ones get ids that are made: no more are
    remembered, and two calls must not have the same."""
    held: int = 4 * 1024 * 1024
    """Characters that are held back: of a call while its name has not come yet, of an argument that may still be JSON
    or a string."""
