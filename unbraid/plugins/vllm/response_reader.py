"""One response as vLLM delivers it, parsed: deltas that come as text and as token ids.

Ids are better: they show which markers are tokens. But vLLM cuts stop texts off the text and not off the ids, and some
tokenizers cannot be read. Then the text is parsed. vLLM is not imported here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, cast

from ... import tokens
from ...caching import WeakCache
from ...core.compiler.compiler import Program, compile_format
from ...core.compiler.prompt_end import read_end
from ...core.events import Event, Reasoning
from ...core.grammar import Format
from ...core.tools import Tools
from ...core.vocabulary import Vocabulary
from ...parsing import UnknownTools
from ..checked_calls import parser_for
from ..common import ReasoningBlocks, settled
from .reasoning import DecodedTokens, ReasoningMarkers, decoded

PROMPT_END = 64
"""Tokens at the end of a prompt that say where the output begins."""


def _vocabulary(tokenizer: Any) -> Vocabulary | None:
    try:
        vocabulary = tokens.vocabulary(tokenizer)
    except (TypeError, ValueError):
        return None
    return (
        None if vocabulary is tokenizer else vocabulary
    )  # none of vLLM's tokenizers is a `Vocabulary`; a mock is anything


def _special(tokenizer: Any) -> frozenset[int]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = getattr(tokenizer, "all_special_ids", ())
    return frozenset([*special, *(id for id, token in added.items() if token.special)])


vocabulary_of = WeakCache(_vocabulary)
"""The vocabulary of vLLM's tokenizer; None if it is of an unknown kind. Then text is parsed."""
special_tokens = WeakCache(_special)
"""The tokens that vLLM leaves out of the text unless `skip_special_tokens` is false."""


def program_of(format: Format, vocabulary: Vocabulary | None) -> Program:
    """The compiled format. Raises `MissingTokens` if the tokenizer lacks tokens that the format needs."""
    version = None if vocabulary is None else vocabulary.version
    return compile_format(format.for_version(version), vocabulary)


def marker_pieces(format: Format, vocabulary: Vocabulary | None, special: frozenset[int]) -> frozenset[int]:
    """The special tokens whose text is a part of something that the format writes. PLaMo writes `<|plamo:begin_`,
    `think`, `:plamo|>` for one marker; so these are not left out."""
    return frozenset() if vocabulary is None else _found(format, cast(Hashable, vocabulary), special)


@lru_cache
def _found(format: Format, hashable: Hashable, special: frozenset[int]) -> frozenset[int]:
    vocabulary = cast(Vocabulary, hashable)
    literals = set(_texts(format))
    spelled = ((token, (vocabulary.token_bytes(token) or b"").decode(errors="replace")) for token in special)
    return frozenset(token for token, text in spelled if text and any(text in literal for literal in literals))


def _texts(node: object) -> Iterator[str]:
    """Every literal of a grammar."""
    if isinstance(node, str):
        if text := node.strip():
            yield text
    elif isinstance(node, tuple):
        for item in node:
            yield from _texts(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for item in fields(node):
            if item.name not in ("name", "ends", "prompt"):
                yield from _texts(getattr(node, item.name))


@dataclass(frozen=True, slots=True)
class TokenRoles:
    """What the tokens of a tokenizer are to a format."""

    format: Format
    silent: frozenset[int]
    """The special tokens that say nothing in it."""
    ends: frozenset[int | None]
    """Those that end the turn."""
    markers: ReasoningMarkers | None
    """The markers of the reasoning, if it has any and the vocabulary can be read."""


_roles: WeakCache[dict[int, TokenRoles]] = WeakCache(lambda tokenizer: {})
"""For each tokenizer, by the identity of the format: it is the same object for all responses."""


def roles_of(format: Format, tokenizer: Any) -> TokenRoles:
    """What the tokens are to a format; found once. Raises `MissingTokens` as `program_of` does."""
    by_format = _roles(tokenizer)
    roles = by_format.get(id(format))
    if roles is None:
        vocabulary, special = vocabulary_of(tokenizer), special_tokens(tokenizer)
        program = program_of(format, vocabulary)
        pieces = marker_pieces(format, vocabulary, special)
        silent = special - program.token_placeholders.keys() - program.codes.keys() - pieces
        ends = frozenset([getattr(tokenizer, "eos_token_id", None), *program.ends])
        reasons = format.reasoning is not None and vocabulary is not None
        markers = ReasoningMarkers(format, vocabulary) if reasons else None  # type: ignore[arg-type]  # it is not None
        roles = by_format[id(format)] = TokenRoles(format, silent, ends, markers)
    return roles


def cuts_text(request: Any) -> bool:
    """Whether vLLM cuts a stop text off the output. It changes the text and leaves the ids."""
    return bool(getattr(request, "stop", None)) and not request.include_stop_str_in_output


def start_of_output(prompt: Sequence[int], format: Format, tokenizer: Any) -> str | Sequence[int]:
    """What to give to a parser as its `prompt`.

    A prefill may break off in the middle of the reasoning. The parser sees that by itself if the markers are tokens of
    a vocabulary that it can read (`core.machine.prompt_end`). Two cases are left: a tokenizer of an unknown kind, and
    markers in several tokens. There the last marker of the turn is searched here, and the parser is told the marker.
    """
    vocabulary = vocabulary_of(tokenizer)
    end: str | Sequence[int] = prompt
    if vocabulary is None:
        end = decoded(tokenizer, prompt[-PROMPT_END:])
    if format.reasoning is None:
        return end
    token_markers = roles_of(format, tokenizer).markers
    if token_markers is not None and not token_markers.spelled:
        return prompt
    markers = token_markers or ReasoningMarkers(format, DecodedTokens(tokenizer))
    if read_end(program_of(format, vocabulary), end).strands or markers.last(prompt)[0] != "open":
        return end
    return format.reasoning.open


def _start(
    prompt: str | Sequence[int] | None, opens: bool, format: Format, tokenizer: Any
) -> str | Sequence[int] | None:
    if isinstance(prompt, str):
        return prompt
    if prompt is not None:
        return start_of_output(prompt, format, tokenizer)
    return format.reasoning.open if opens and format.reasoning is not None else None


class ResponseReader:
    """Parses one response as it comes: its ids, or its text if the ids do not say enough."""

    def __init__(
        self,
        format: Format,
        tokenizer: Any,
        request: Any,
        *,
        tools: Tools | None,
        separate_reasoning: bool,
        unknown_tools: UnknownTools = "text",
        prompt: str | Sequence[int] | None = None,
        opens: bool = False,
        by_ids: bool = True,
        whole: bool = False,
    ) -> None:
        """prompt: its ids, or its end as text; None if nobody knows it. opens: whether an output then begins inside the
        reasoning. by_ids: False if the ids do not belong to the text. whole: True if the response is not streamed."""
        self._request = request
        self._vocabulary = vocabulary_of(tokenizer)
        roles = roles_of(format, tokenizer)
        self._silent = roles.silent
        self._stops = frozenset(getattr(request, "stop_token_ids", None) or ())
        self._ends = self._stops | roles.ends
        """The ids that say that the model ended its turn. Without one of them it may have been cut off."""
        self._hidden = self._silent if getattr(request, "skip_special_tokens", True) else frozenset()
        """The tokens that are not parsed: vLLM's text would not show them, and they say nothing in this format."""
        self._by_ids: bool | None = None if by_ids and self._vocabulary is not None else False
        """None until the first delta decides. A parser cannot change from one to the other."""
        self.shows = self._hidden.isdisjoint
        """Whether all of some ids are parsed."""
        self.plain = False
        """Whether `feed_tokens` does all that `feed` would, with ids that are all parsed, before the last delta."""
        self._blocks = None if format.headers is None else ReasoningBlocks(format)
        self._parser = parser_for(
            format,
            tools,
            unknown_tools=unknown_tools,
            tokenizer=self._vocabulary,
            prompt=_start(prompt, opens, format, tokenizer),
            separate_reasoning=separate_reasoning,
            keep_message=whole,
            markup=format.speech is not None,
        )
        self.feed_tokens = self._parser.feed_tokens

    def feed(self, text: str, ids: Sequence[int], finished: bool) -> list[Event]:
        """The events of one delta, which came with this text and these ids."""
        self._choose(text, ids)
        if finished:
            events, last, _ = self._feed_last(text, ids)
            return [*events, *last]
        if self._by_ids:
            if not self.shows(ids):
                ids = [token for token in ids if token not in self._hidden]
            events = self.feed_tokens(ids)
        else:
            events = self._parser.feed(text) if text else []
        return events if self._blocks is None else list(map(self._apart, events))

    def _choose(self, text: str, ids: Sequence[int]) -> None:
        """Whether ids are read or text; the first delta decides."""
        if self._by_ids is None and (text or ids):
            self._by_ids = bool(ids) and not cuts_text(self._request)
            self.plain = self._by_ids and self._blocks is None

    def _feed_last(self, text: str, ids: Sequence[int]) -> tuple[list[Event], list[Event], bool]:
        """The events of the last delta, those that come with the end, and whether the model ended its turn."""
        ended = bool(ids) and ids[-1] in self._ends
        if ids and not self._request.include_stop_str_in_output:
            last = ids[-1]
            if last in self._stops or last in self._silent:
                ids = ids[:-1]
        events = self.feed(text, ids, False)
        last_ones = self._parser.finish(end_of_turn=ended)
        return events, last_ones if self._blocks is None else list(map(self._apart, last_ones)), ended

    def _apart(self, event: Event) -> Event:
        """The event; a line break before reasoning that begins a block of its own."""
        if not isinstance(event, Reasoning) or self._blocks is None:
            return event
        return replace(event, text=self._blocks.before(event) + event.text)

    def whole(self, text: str, ids: Sequence[int]) -> list[Event]:
        """The events of a whole response."""
        self._choose(text, ids)
        events, last, ended = self._feed_last(text, ids)
        return settled(events, last, ended=ended)
