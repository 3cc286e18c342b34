"""What vLLM's own parser of the same name would do where the text alone does not say it.

Where does an output begin of which nobody knows the prompt? vLLM's parsers each have their own answer, by what the
request tells the template (`enable_thinking`, `thinking`, `reasoning_effort`, …). Instead of repeating their answers we
ask them, with a text of one letter. None of this happens where the prompt is known and says it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")

Place = tuple[str, str]
"""The module and the name of a class."""


def class_of(place: Place | None) -> Any:
    """vLLM's own class; None if it has none, or not what the class needs."""
    if place is None:
        return None
    try:
        return getattr(import_module(place[0]), place[1], None)
    except ImportError:
        return None


class Counterpart:
    """vLLM's reasoning parser of the same name, made when it is first asked."""

    def __init__(self, theirs: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        """theirs: vLLM's class; None if there is none."""
        self._theirs = theirs
        self._arguments = arguments
        self._options = options
        self._made: Any = None

    def check_request(self) -> None:
        """Refuse what vLLM's parser refuses: a word of the request that it does not know. What it lacks in the
        tokenizer, it lacks without that request, too."""
        options = {name: value for name, value in self._options.items() if name != "chat_template_kwargs"}
        if self._theirs is None or not self._options.get("chat_template_kwargs"):
            return
        try:
            self._made = self._theirs(*self._arguments, **self._options)
        except ValueError:
            try:
                self._theirs(*self._arguments, **options)
            except Exception:
                return
            raise
        except Exception:
            return

    def opens_what_closes(self, close: str) -> bool:
        """Whether text before a closing marker that nothing opened is reasoning."""
        return self._ask(lambda parser: bool(parser.extract_reasoning(f"x{close}x", None)[0]), True)

    def opens(self, otherwise: bool) -> bool:
        """Whether an output begins inside the reasoning if nothing says so."""
        return self._ask(lambda parser: bool(parser.extract_reasoning("x", None)[0]), otherwise)

    def opens_streams(self) -> bool:
        """The same, if the output is streamed: then its end is not there yet that would show it."""
        if self._theirs is None:
            return False
        fresh = Counterpart(self._theirs, self._arguments, self._options)
        first: tuple[Any, ...] = ("", "x", "x", [], [0], [0])
        return fresh._ask(lambda parser: bool(parser.extract_reasoning_streaming(*first).reasoning), False)

    def must_answer(self, request: Any, open: str) -> bool:
        """Whether reasoning without an answer is the answer (`force_nonempty_content`)."""
        if not getattr(request, "chat_template_kwargs", None):
            return False
        return self._ask(lambda parser: bool(parser.extract_reasoning(f"{open}x", request) == (None, "x")), False)

    def ended(self, ids: Sequence[int]) -> bool:
        """Whether a prompt without any marker means that there is no reasoning."""
        return self._ask(lambda parser: bool(parser.is_reasoning_end(list(ids))), False)

    @cached_property
    def never_waits(self) -> bool:
        """Whether constraints hold from the first token on, reasoning or not: they cover it, or there is none."""
        return self._ask(lambda parser: bool(parser.is_reasoning_end_streaming([], [])), False)

    def _ask(self, question: Callable[[Any], T], otherwise: T) -> T:
        if self._theirs is None:
            return otherwise
        try:
            if self._made is None:
                self._made = self._theirs(*self._arguments, **self._options)
            return question(self._made)
        except Exception:  # it may need what this tokenizer or this request does not have; ours does not
            return otherwise
