"""Ids for tool calls: they look random, are reproducible from a seed, and cannot collide within a response."""

from __future__ import annotations

import os
from typing import Any

from .grammar import CallIds

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Coprime to 62, so that seed + count * step takes 62**length different values before one comes again.
_STEP = 982_451_653_982_451_653


class IdSource:
    """The ids of one response: those that the model gave and those that are made for it."""

    __slots__ = ("_made", "_seed", "_style", "_used")

    def __init__(self, style: CallIds, seed: int | None) -> None:
        self._style = style
        self._seed = seed
        self._made = 0
        self._used: set[str] = set()

    def __contains__(self, id: str) -> bool:
        return id in self._used

    def claim(self, id: str) -> str:
        """Use this id or, if it is empty, a new one."""
        while not id or id in self._used:
            id = self._make()
        self._used.add(id)
        return id

    def _make(self) -> str:
        if self._seed is None:
            self._seed = int.from_bytes(os.urandom(24), "big")
        number = (self._seed + self._made * _STEP) % 62**self._style.length
        self._made += 1
        digits = []
        for _ in range(self._style.length):
            number, digit = divmod(number, 62)
            digits.append(_ALPHABET[digit])
        return self._style.prefix + "".join(digits)

    def save(self) -> list[Any]:
        return [self._seed, self._made, sorted(self._used)]

    def load(self, saved: list[Any]) -> None:
        self._seed, self._made, used = saved
        self._used = set(used)
