"""Values out of a fuzzer's bytes: small numbers, choices, texts and JSON.

A byte always means the same kind of thing, so that a fuzzer that changes one byte changes one thing. When the bytes run
out, all is 0 or empty: every input is a valid one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeVar

T = TypeVar("T")
_DEEPEST = 6


class Source:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether there is something left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, most: int) -> int:
        """A number below `most`."""
        number = self.byte()
        return (number if most <= 256 else number * 256 + self.byte()) % most

    def choice(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self) -> bool:
        return bool(self.byte() & 1)

    def bytes(self, most: int | None = None) -> bytes:
        """The next bytes, or all that are left."""
        end = len(self._data) if most is None else min(len(self._data), self._at + most)
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def words(self, words: Sequence[str], most: int | None = None) -> list[str]:
        """Pieces of a text. A byte below 128 is that character, any other is one of `words`."""
        found, data = [], iter(self.bytes(most))
        for byte in data:
            if byte < 128:
                found.append(chr(byte))
            elif len(words) <= 128:
                found.append(words[(byte - 128) % len(words)])
            else:
                found.append(words[((byte - 128) * 256 + next(data, 0)) % len(words)])
        return found

    def text(self, words: Sequence[str], most: int = 24) -> str:
        """A short text."""
        return "".join(self.words(words, self.below(most)))

    def json(self, words: Sequence[str], depth: int = 0) -> Any:
        """Any JSON value, with what JSON allows and few expect."""
        kind = self.below(8 if depth < _DEEPEST and self else 6)
        if kind == 6:
            return [self.json(words, depth + 1) for _ in range(self.below(5))]
        if kind == 7:
            return {self.text(words): self.json(words, depth + 1) for _ in range(self.below(5))}
        if kind <= 2:
            return self.text(words)
        return deepcopy(self.choice(_SCALARS))


_SCALARS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 0.0, -0.0, 0.5, 1e308, -1e308, 5e-324, 2**31, 2**53, 2**63, 2**64, -(2**63)),
    *(10**40, "", "null", "\x00", "\ud800", "\U0010ffff", "é", [], {}, [[]], [{}], {"": ""}, "x" * 300, [0] * 40),
]
