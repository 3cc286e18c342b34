"""The input of a custom tool, taken out of the arguments of a call while they arrive, and put into them again.

The arguments are JSON, `{"input": "…"}`, and the text is what that string says. A model may write something else:
another key, an object where the string should be, more keys. Nothing of it is lost. From where the arguments are no
longer as they should be, they are the input as they are written: all of them, or, where text has already gone out, what
comes after it. `{}` is no input at all: a parser writes that where the model wrote no arguments.
"""

from __future__ import annotations

from typing import Any, Self

from ..json_text import plain_end, quote, read_escape
from .definition import INPUT

_OPENING = f'{{"{INPUT}":"'
_SPACE_BEFORE = frozenset((0, 1, _OPENING.index(":"), len(_OPENING) - 1))
"""The places in it that whitespace may stand before."""
_SPACE = " \t\n\r"

_BEGIN, _STRING, _CLOSE, _OVER, _AS_WRITTEN = range(5)


class CustomInput:
    """Decodes the arguments of one call. It does not matter how they are cut."""

    __slots__ = ("_at", "_held", "_state", "complete")

    def __init__(self) -> None:
        self._state = _BEGIN
        self._at = 0
        """How much of the opening has come."""
        self._held = ""
        """What has come and may yet be the input as it is written; inside the string, an escape that is cut."""
        self.complete = False
        """After `finish`: whether the arguments were whole, and the one string and nothing else."""

    def feed(self, fragment: str) -> str:
        """Takes the next fragment of the arguments; the text that it says."""
        if self._state == _STRING:
            return self._string(fragment, at_end=False)
        if self._state == _AS_WRITTEN:
            return fragment
        return self._outside(fragment)

    def finish(self) -> str:
        """No more comes: the rest of the text."""
        if self._state == _STRING:
            return self._string("", at_end=True) + self._held
        if self._state == _OVER:
            self.complete = self._at == len(_OPENING)
            return ""
        return "" if self._state == _CLOSE else self._held

    def save(self) -> list[Any]:
        """Its state as plain values."""
        return [self._state, self._at, self._held]

    @classmethod
    def load(cls, saved: list[Any]) -> Self:
        made = cls()
        made._state, made._at, made._held = saved
        return made

    def _outside(self, fragment: str) -> str:
        """Outside of the string all is held, a character after the other, until it is known what it belongs to."""
        for at, char in enumerate(fragment):
            if char in _SPACE and (self._state != _BEGIN or self._at in _SPACE_BEFORE):
                continue
            if self._state == _BEGIN and char == _OPENING[self._at]:
                self._at += 1
                if self._at == len(_OPENING):
                    self._state, self._held = _STRING, ""
                    return self._string(fragment[at + 1 :], at_end=False)
            elif char == "}" and (self._state == _CLOSE or (self._state == _BEGIN and self._at == 1)):
                self._state = _OVER
            else:
                self._state, held, self._held = _AS_WRITTEN, self._held, ""
                return held + fragment
        self._held += fragment
        return ""

    def _string(self, fragment: str, at_end: bool) -> str:
        text, said, at = self._held + fragment, [], 0
        self._held = ""
        while at < len(text):
            end = plain_end(text, at)
            said.append(text[at:end])
            if end == len(text):
                break
            if text[end] == '"':
                self._state, self._held = _CLOSE, '"'
                said.append(self._outside(text[end + 1 :]))
                break
            size, value = read_escape(text, end, at_end)
            if not size:
                self._held = text[end:]
                break
            said.append(value)
            at = end + size
        return "".join(said)


def input_of(arguments: str) -> str:
    """The input that the arguments of a call say."""
    decoder = CustomInput()
    return decoder.feed(arguments) + decoder.finish()


def arguments_of(input: str) -> str:
    """The arguments of a call with this input."""
    return f'{{"{INPUT}": {quote(input)}}}'
