"""A response read once, where vLLM would read it twice.

vLLM makes one `Parser` of a reasoning parser and a tool parser. Its usual one, the `DelegatingParser`, passes on what
the first leaves to the second, as text: then their order decides what is nested in what, and whether a marker was a
token nobody knows. Where both are ours, or there is but one, a `WholeParser` takes its place. vLLM has no setting for
this, so the function that puts the two together is wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from vllm.entrypoints.generate.base.protocol import FunctionCall
from vllm.parser.abstract_parser import DelegatingParser
from vllm.parser.metrics import record_tool_parser_invocation
from vllm.parser.parser_manager import ParserManager

from ...core.grammar import Format
from ...core.tools import Tools
from ...formats import compose
from .deltas import as_delta
from .reasoning_tokens import ReasoningTokens
from .request_constraints import constrain, show_markers, tools_of
from .response_reader import Reading, cuts_text, start_of_output, vocabulary_of


class WholeParser(DelegatingParser):  # type: ignore[misc]
    """Reasoning, content and calls of one response. vLLM makes it with the two parsers, which say what there is to
    find; all is found by one parser of ours."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parts = (self._reasoning_parser, self._tool_parser)
        self._format = _joined(*(None if part is None else part.format for part in parts))
        self._prompt: Sequence[int] | None = None
        self._reading: Reading | None = None
        self._tokens: ReasoningTokens | None = None

    def adjust_request(self, request: Any) -> Any:
        tokenizer = self.model_tokenizer
        if cuts_text(request) or vocabulary_of(tokenizer) is None:
            show_markers(request, self._format, tokenizer)
        if self._tool_parser is not None:
            reasons, level = self._reasoning_parser is not None, int(self.tool_strict_level)
            constrain(request, self._format, tokenizer, reasoning_parser=reasons, strict_level=level)
        return request

    def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
        """Where tools run in the server, there is another output after each call, with a prompt of its own."""
        self._prompt, self._tokens = prompt_token_ids, None

    def parse(
        self,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> tuple[str | None, str | None, list[Any] | None]:
        said = as_delta(self._read(request, whole=True).whole(model_output, model_output_token_ids), self._format)
        self._note(said, request, streams=False)
        if said is None:
            return None, None, []
        calls = [
            FunctionCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in said.tool_calls
        ]
        return said.reasoning, said.content, calls

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> Any:
        if self._reading is None:
            self._prompt = self._prompt if prompt_token_ids is None else prompt_token_ids
            self._reading = self._read(request)
        said = as_delta(self._reading.feed(delta_text, delta_token_ids, finished), self._format)
        self._note(said, request, streams=True)
        if said is None or request.include_reasoning:
            return said
        said.reasoning = None
        return said if said.content or said.tool_calls else None

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        vocabulary = vocabulary_of(self.model_tokenizer)
        if self._reasoning_parser is None or vocabulary is None:
            return 0
        if self._tokens is None:
            start = self._prompt and start_of_output(self._prompt, self._format, self.model_tokenizer)
            self._tokens = ReasoningTokens(self._format, vocabulary, start)
        return self._tokens.count(token_ids)

    def _read(self, request: Any, whole: bool = False) -> Reading:
        return Reading(
            self._format,
            self.model_tokenizer,
            request,
            tools=Tools([]) if self._tool_parser is None else tools_of(request),
            separate_reasoning=self._reasoning_parser is not None,
            prompt=self._prompt,
            whole=whole,
        )

    def _note(self, said: Any, request: Any, streams: bool) -> None:
        """For vLLM's metrics."""
        if self._tool_parser is not None and request.tool_choice != "none":
            called = said is not None and bool(said.tool_calls)
            record_tool_parser_invocation(is_tool_called=called, is_streaming=streams, request=request)


@lru_cache
def _joined(reasoning: Format | None, tools: Format | None) -> Format:
    if reasoning is None or tools is None or reasoning == tools:
        format = tools or reasoning
        assert format is not None
        return format
    return compose(reasoning=reasoning.name, tools=tools.name)


_compose = ParserManager._compose_parser
"""What vLLM puts two parsers together with."""


def read_once() -> None:
    """Have vLLM make `WholeParser`s. Once more does no harm."""
    ParserManager._compose_parser = staticmethod(_compose_whole)


def _compose_whole(*args: Any, **kwargs: Any) -> Any:
    made = _compose(*args, **kwargs)
    # Some models have a class of their own (gpt-oss), on which vLLM's server relies.
    if made is None or (made.parse, made.parse_delta) != (DelegatingParser.parse, DelegatingParser.parse_delta):
        return made
    parts = (made.reasoning_parser_cls, made.tool_parser_cls)
    ours = all(part is None or isinstance(getattr(part, "format", None), Format) for part in parts)
    return type(made.__name__, (WholeParser, made), {}) if ours else made
