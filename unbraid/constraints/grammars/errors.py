"""What is wrong with a grammar."""

from __future__ import annotations


class BadGrammar(ValueError):
    """A grammar that cannot be read; the message says where and why."""


class UnsupportedGrammar(BadGrammar):
    """A grammar that others may read, with something in it that is not supported here. It is not enforced."""
