"""Ids for tool calls: they look random, are reproducible from a seed, and cannot collide within a response.

What has been used is known without a list that grows. Whether an id was made here follows from the id itself, since the
made ones are numbered. Of those that the model gave, digests are kept, up to `Limits.ids`; after so many calls with
ids of their own, further ones get ids that are made.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any
from zlib import crc32

from .grammar import CallIds

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = {char: digit for digit, char in enumerate(_ALPHABET)}
# Coprime to 62, so that seed + count * step takes 62**length different values before one comes again.
_STEP = 982_451_653_982_451_653


class IdSource:
    """The ids of one response: those that the model gave and those that are made for it."""

    __slots__ = ("_first", "_given", "_made", "_most", "_seed", "_seed_text", "_style")

    def __init__(self, style: CallIds, seed: int | None, most: int) -> None:
        """most: how many ids that the model gave are remembered."""
        self._style = style
        self._seed: int | None = None
        """Drawn with the first id that is made, where none was given."""
        self._seed_text: str | None = None
        """The same, as a snapshot has it, after `load`."""
        if seed is not None:
            self._seed = seed % _power(style.length)
        self._first = ""
        """The digits of the seed, where it was drawn with the first id."""
        self._made = 0
        self._given: set[int] = set()
        """Digests of the ids that the model gave."""
        self._most = most

    def __contains__(self, id: str) -> bool:
        if not self._made and not self._given:
            return False
        number = self._number(id)
        return _digest(id) in self._given or (number is not None and number < self._made)

    def claim(self, id: str) -> str:
        """Use this id or, if it is empty or was used, a new one."""
        if id and id not in self and len(self._given) < self._most:
            self._given.add(_digest(id))
            return id
        id = self._make()
        while self._given and _digest(id) in self._given:
            id = self._make()
        return id

    def seed(self) -> int | None:
        """The seed. It is read when it is needed: most pieces of a stream need no id, and most replies one or none."""
        if self._seed is None:
            if self._seed_text is not None:
                self._seed = int(self._seed_text, 16)
            elif self._first:
                self._seed = _read(self._first)
        return self._seed

    def _make(self) -> str:
        style = self._style
        seed = self.seed() if self._made or self._seed_text is not None else self._seed
        if seed is None:
            # Its digits are the first id: a large number need not be written for it.
            self._first = random_bytes(style.length).translate(_digits_of_bytes()).decode()
            self._made = 1
            return style.prefix + self._first
        number = (seed + self._made * _STEP) % _power(style.length)
        self._made += 1
        pairs, digits = _pairs(), []
        while number:  # two at a time: these are large numbers
            number, pair = divmod(number, 62 * 62)
            digits.append(pairs[pair])
        return style.prefix + "".join(digits)[: style.length].ljust(style.length, "0")

    def _number(self, id: str) -> int | None:
        """Which of the made ids this is, whether it has been made yet or not; None if it does not look like one."""
        style = self._style
        digits = id[len(style.prefix) :]
        seed = self.seed()
        if (
            seed is None
            or len(digits) != style.length
            or not id.startswith(style.prefix)
            or not _DIGITS.keys() >= set(digits)
        ):
            return None
        size = _power(style.length)
        return (_read(digits) - seed) * _inverse_step(size) % size

    def save(self) -> list[Any]:
        if self._seed_text is None and (seed := self.seed()) is not None:
            self._seed_text = f"{seed:x}"
        return [self._seed_text, self._made, sorted(self._given) if self._given else []]

    def load(self, saved: list[Any]) -> None:
        self._seed_text, self._made, digests = saved
        self._seed, self._first = None, ""
        self._given = set(digests)


_MOST_RANDOM, _AT_ONCE = 32, 64
_drawn: list[bytes] = []


def random_bytes(size: int) -> bytes:
    """Random bytes, which nobody can guess, in any thread. They are drawn for several ids at once: to ask the system
    takes as long as all else of an id."""
    if size > _MOST_RANDOM:
        return os.urandom(size)
    try:
        return _drawn.pop()[:size]
    except IndexError:
        block = os.urandom(_MOST_RANDOM * _AT_ONCE)
        _drawn.extend(block[at : at + _MOST_RANDOM] for at in range(_MOST_RANDOM, len(block), _MOST_RANDOM))
        return block[:size]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # or two processes would make the same ids


def _digest(id: str) -> int:
    return crc32(id.encode("utf-8", "surrogatepass"))


def _read(digits: str) -> int:
    """The number that is written with these digits, the lowest first."""
    number = 0
    for char in reversed(digits):
        number = number * 62 + _DIGITS[char]
    return number


@cache
def _digits_of_bytes() -> bytes:
    """A digit for each byte."""
    return bytes(ord(_ALPHABET[byte % 62]) for byte in range(256))


@cache
def _pairs() -> tuple[str, ...]:
    """Two digits for each number below 62 * 62, the lower one first."""
    return tuple(low + high for high in _ALPHABET for low in _ALPHABET)


@cache
def _power(length: int) -> int:
    """How many ids of this length there are."""
    return int(62**length)


@cache
def _inverse_step(size: int) -> int:
    return pow(_STEP, -1, size)
