"""One response as vLLM hands it out: deltas, each as text and as ids. vLLM itself is not needed here."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any

from ... import tokens
from ...core.events import Content, Event, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.grammar import Format
from ...core.machine.compiler import compile_format
from ...core.machine.program import Program
from ...core.machine.prompt_end import read_end
from ...core.tools import Tools
from ...core.vocabulary import Vocabulary
from ...parsing import Parser
from ...tokens.weak_cache import Remembered
from .reasoning import DecodedTokens, ReasoningMarks

PROMPT_END = 64
"""As many tokens of a prompt as say where the output begins."""


def _vocabulary(tokenizer: Any) -> Vocabulary | None:
    try:
        return tokens.vocabulary(tokenizer)
    except (TypeError, ValueError):
        return None


def _special(tokenizer: Any) -> frozenset[int]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return frozenset([*tokenizer.all_special_ids, *(id for id, token in added.items() if token.special)])


vocabulary_of = Remembered(_vocabulary)
"""The tokens of vLLM's tokenizer; None where it is of a kind that we cannot read, and text has to do."""
special_tokens = Remembered(_special)
"""The tokens that vLLM keeps out of the text, unless told otherwise."""


def program_of(format: Format, vocabulary: Vocabulary | None) -> Program:
    """Raises `MissingTokens` where the tokenizer is not one for this format."""
    version = None if vocabulary is None else vocabulary.version
    return compile_format(format.for_version(version), vocabulary)


def cuts_text(request: Any) -> bool:
    """Whether vLLM cuts a stop text off the output. It does so from the text, and leaves the ids as they are."""
    return bool(request.stop) and not request.include_stop_str_in_output


def start_of_output(prompt: Sequence[int], format: Format, tokenizer: Any) -> str | Sequence[int]:
    """What there is to know of a prompt. One that breaks off inside the reasoning ends with no marker, but has opened
    it."""
    vocabulary = vocabulary_of(tokenizer)
    end: str | Sequence[int] = prompt
    if vocabulary is None:
        end = str(tokenizer.decode(list(prompt[-PROMPT_END:]), skip_special_tokens=False))
    if format.reasoning is None or read_end(program_of(format, vocabulary), end).strands:
        return end
    marks = ReasoningMarks(format, vocabulary or DecodedTokens(tokenizer))
    return format.reasoning.open if marks.last(prompt)[0] == "open" else end


class Reading:
    """One response, parsed as it comes: by its ids, or by its text where the ids do not say enough."""

    def __init__(
        self,
        format: Format,
        tokenizer: Any,
        request: Any,
        *,
        tools: Tools,
        separate_reasoning: bool,
        prompt: Sequence[int] | None = None,
        by_ids: bool = True,
        whole: bool = False,
    ) -> None:
        """by_ids: False where the ids are not those of the text. whole: True where nothing is streamed."""
        self._tokenizer = tokenizer
        self._request = request
        self._vocabulary = vocabulary_of(tokenizer)
        program = program_of(format, self._vocabulary)
        self._own = ChainMap[int, Any](program.token_placeholders, program.codes)
        self._by_ids: bool | None = None if by_ids and self._vocabulary is not None else False
        """Decided with the first delta, since a parser cannot change its mind."""
        self._parser = Parser(
            format,
            tools=tools,
            tokenizer=self._vocabulary,
            prompt=None if prompt is None else start_of_output(prompt, format, tokenizer),
            separate_reasoning=separate_reasoning,
            keep_message=whole,
            markup=format.speech is not None,
        )

    def feed(self, text: str, ids: Sequence[int], finished: bool) -> list[Event]:
        """The events of one delta, which came with this text and these ids."""
        if self._by_ids is None and (text or ids):
            self._by_ids = bool(ids) and not cuts_text(self._request)
        events: list[Event] = []
        if self._by_ids:
            events = self._parser.feed_tokens(self._said(ids, finished))
        elif text:
            events = self._parser.feed(text)
        return [*events, *self._parser.finish()] if finished else events

    def whole(self, text: str, ids: Sequence[int]) -> list[Event]:
        """The events of a response that comes at once. A call that is not complete is text: vLLM would say that the
        model has made a call, even where the output was cut off inside of it."""
        events = self.feed(text, ids, True)
        broken = {event.index: event for event in events if isinstance(event, ToolCallEnd) and not event.complete}
        settled: list[Event] = []
        for event in events:
            if isinstance(event, ToolCallStart) and event.index in broken:
                settled.append(Content(broken[event.index].raw, event.start, event.end))
            elif not isinstance(event, ToolCallArguments | ToolCallEnd) or event.index not in broken:
                settled.append(event)
        return settled

    def _said(self, ids: Sequence[int], finished: bool) -> Sequence[int]:
        """The ids that vLLM's text would show, and those that mean something in the format."""
        request, special, own = self._request, special_tokens(self._tokenizer), self._own
        if finished and ids and not request.include_stop_str_in_output:
            last = ids[-1]
            if last in (request.stop_token_ids or ()) or (last in special and last not in own):
                ids = ids[:-1]
        if not request.skip_special_tokens or special.isdisjoint(ids):
            return ids
        return [token for token in ids if token not in special or token in own]
