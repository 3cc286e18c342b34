"""Bounds on what hostile output can make a parser hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    depth: int = 512
    """How deep arguments may nest and still be checked. (Python's own `json` gives up somewhere before 1,000.)"""
    name: int = 256
    """Characters of a tool's name, an id, or a key of a call object."""
    number: int = 4096
    """Characters of one number."""
    held: int = 4 * 1024 * 1024
    """Characters of a call that are held back while its name has not come yet."""
