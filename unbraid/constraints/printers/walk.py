"""A language followed character by character: what may come next, for people and not for engines.

Engines are told a grammar and follow it themselves. The playground shows what a constraint allows while somebody types.
It follows the same states that GBNF is printed from, so what it shows is what llama.cpp would enforce. Tokens stand as
their texts.
"""

from __future__ import annotations

from ...schema.regular import Ranges, chars, without
from ..determinize.items import TooAmbiguous
from ..determinize.states import State
from ..language import OutputLanguage, Token, restricted
from ..output_prefix import NotContinued
from .rules import ItemPrinter

_SPACE = chars(" ", "\n", "\t").members
_AMBIGUOUS = "the constraint leaves too many alternatives open here to be followed: simplify its schemas"


class _Followed(ItemPrinter):
    """The states of a language in which tokens are text."""

    most_tokens = 0

    def token(self, node: Token) -> str:
        return self.expression(node.text)


class Walk:
    """Where a text stands in a language. Feed it characters; one that is not allowed changes nothing."""

    def __init__(self, language: OutputLanguage) -> None:
        language = restricted(language)
        followed = _Followed(language)
        try:
            followed.read(language.rules)
            self._states = followed.states_of
            self._state = self._states.begun(followed.items.of(language.root), [()])
        except (TooAmbiguous, RecursionError) as error:
            raise NotContinued(_AMBIGUOUS) from error

    @property
    def allowed(self) -> Ranges:
        """The characters that may come next."""
        return self._states.next_characters(self._state)

    @property
    def may_end(self) -> bool:
        """Whether the text may end here."""
        return self._states.nullable(self._state)

    def feed(self, char: str) -> bool:
        """Go on by a character. Says whether it is allowed. Raises `NotContinued` where there are too many ways to go
        on."""
        after = self._after(self._state, char)
        self._state = after or self._state
        return bool(after)

    def forced(self, most: int = 200) -> str:
        """The text that must come next, whatever the model would rather write, up to `most` characters. Whitespace that
        may come before a part of it, and changes nothing, is left out."""
        state, text = self._state, ""
        while len(text) < most and not self._states.nullable(state):
            char = self._needed(state)
            if not char:
                break
            text += char
            state = self._after(state, char)
        return text

    def _needed(self, state: State) -> str:
        """The one character that has to come, now or after whitespace that changes nothing; "" where there is none."""
        ranges = self._states.next_characters(state)
        needed = without(ranges, _SPACE) or ranges
        if len(needed) != 1 or needed[0][0] != needed[0][1]:
            return ""
        char = chr(needed[0][0])
        spaces = [chr(code) for low, high in without(ranges, needed) for code in range(low, high + 1)]
        same = self._after(state, char)
        return char if all(self._after(self._after(state, space), char) == same for space in spaces) else ""

    def _after(self, state: State, char: str) -> State:
        try:
            return self._states.after(state, [char])
        except (TooAmbiguous, RecursionError) as error:
            raise NotContinued(_AMBIGUOUS) from error
