"""SGLang's detectors with unbraid's parsing. This module imports SGLang; `registration` imports this module.

A detector is one of SGLang's classes with its parsing replaced by a mixin (`ToolParsing`, `ReasoningParsing`). What
else the class knows about its model, such as grammars or whether requests reason by default, stays. For a format
without a class in SGLang, `OwnTools` or `OwnReasoning` is the base.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from sys import getrefcount
from typing import Any, ClassVar

from sglang.srt.entrypoints.openai.protocol import Function, Tool
from sglang.srt.environ import envs
from sglang.srt.function_call.base_format_detector import BaseFormatDetector, StructuralTag
from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem
from sglang.srt.parser.reasoning_parser import BaseReasoningFormatDetector
from sglang.srt.parser.reasoning_parser import StreamingParseResult as ReasoningResult

from ...caching import LruCache
from ...constraints import constraint
from ...core.events import Content, ToolCallArguments, ToolCallStart
from ...core.grammar import Format
from ...core.tools import Tools
from ...errors import UnbraidError
from ...formats import compose
from ...parsing import parse
from ..common import KEPT, OwnWays, as_chosen, chooses, following_schemas, is_set, own_ways, stated_format
from ..fast_models import unvalidated
from .text_streams import (
    MOST_SKIPPED,
    CallPiece,
    ReasoningStream,
    StreamedCall,
    ToolStream,
    begins_plainly,
    begun,
    known_tools,
    said,
)

logger = logging.getLogger(__name__)

STEP_AUDIO_2 = "step-audio-2"
_FORWARDS = "SGLANG_FORWARD_UNKNOWN_TOOLS"
HAS_TAGS = hasattr(StructuralTag, "model_validate")
"""Whether xgrammar is installed. SGLang works without it."""


def _of_result(text: str, calls: list[Any]) -> Any:
    return StreamingParseResult(normal_text=text, calls=calls)


def _of_piece(call: int, text: str) -> Any:
    return ToolCallItem(tool_index=call, parameters=text)


def _of_beginning(call: int, name: str, text: str) -> Any:
    return ToolCallItem(tool_index=call, name=name, parameters=text)


_result = unvalidated(_of_result, "a text", [])
_beginning = unvalidated(_of_beginning, 7, "a name", "a text")
_piece = unvalidated(_of_piece, 7, "a text")


class Results:
    """Makes the results of the deltas of one response.

    SGLang throws a result away as soon as it has read it. A result that nobody else holds is used again for the next
    delta: to write its two values takes a third of the time that a new one takes.
    """

    _last: Any = None
    _is_empty = False

    def references(self) -> int:
        """How many there are to a result that nobody else holds, as `result` counts them."""
        self._last = _result("", [])
        return getrefcount(self._last)

    def no_result(self) -> Any:
        """What is held back has a result, too."""
        if not self._is_empty or getrefcount(self._last) != _ALONE:
            self.result("", [])
            self._is_empty = True
        return self._last

    def result(self, text: str, calls: list[Any]) -> Any:
        """The content that is new, and the pieces of calls."""
        self._is_empty = False
        if getrefcount(self._last) != _ALONE:
            self._last = _result(text, calls)
            return self._last
        last = self._last
        values = last.__dict__
        values["normal_text"], values["calls"] = text, calls
        return last


_ALONE = Results().references() if _result is not _of_result else -1
"""The count for a result that nobody else holds; none where nothing is known of how pydantic keeps its state."""


class ToolParsing(Results):
    """The parsing of a tool-call detector. SGLang makes one for each request."""

    format: Format
    """Calls only: everything else is text, with its markers."""
    _stream: ToolStream | None = None
    _over = False
    _skipped = ""
    """What the response began with, before there was anything to parse."""
    _is_plain: Callable[[str], object] | None = None
    """Whether a text may be more of that."""

    def has_tool_call(self, text: str) -> bool:
        """Whether there is anything to take out of the text: calls, or markers around its content. If not, SGLang
        leaves a whole reply as it is."""
        message = parse(self.format, text)
        return bool(message.tool_calls) or message.content != text

    @classmethod
    def parses_without_tools(cls) -> bool:
        """True if content has markers of its own: they are in every reply."""
        theirs: Any = super()
        return cls.format.headers is not None or cls.format.answer is not None or bool(theirs.parses_without_tools())

    def detect_and_parse(self, text: str, tools: list[Any], *_: Any, **__: Any) -> Any:
        """A whole output. Whitespace beside calls is left out."""
        stream = self._make_stream(tools, whole=True)
        content, pieces = stream.whole(text)
        # SGLang makes ids of these numbers for some models, so no two calls may share one.
        calls = [
            ToolCallItem(tool_index=at, name=name, parameters=arguments)
            for at, (_, name, arguments) in enumerate(pieces)
        ]
        return StreamingParseResult(normal_text="" if calls and not content.strip() else content, calls=calls)

    def parse_streaming_increment(self, new_text: str, tools: list[Any], *_: Any, **__: Any) -> Any:
        stream = self._stream
        if stream is None:
            if self._is_plain is None:
                self._is_plain = begins_plainly(self.format)
            if self._is_plain(new_text) and len(self._skipped) < MOST_SKIPPED:
                self._skipped += new_text
                return self.result(new_text, [])
            stream = self._stream = self._new_stream(tools)
            if self._skipped:
                stream.skip(self._skipped)
        machine, events = stream.machine, None
        if machine is not None and machine.fast_path is not None and new_text:
            events = machine.fast_path(machine, new_text)
        if events is None:
            events = stream.parse(new_text)
        if not events:
            return self.no_result()
        event = events[0]
        kind = type(event)
        if len(events) == 1 or (len(events) == 2 and kind is ToolCallArguments and stream.ends(events[1])):
            # What most deltas are: the next piece of the content or of arguments, which may be the last of a call.
            if kind is ToolCallArguments:
                call, text = event.index, event.fragment  # type: ignore[union-attr]
                self.current_tool_id = call
                stream.calls[call].pieces.append(text)
                return self.result("", [_piece(call, text)])
            if kind is Content:
                return self.result(event.text, [])  # type: ignore[union-attr]
            if kind is ToolCallStart:
                self.current_tool_id = call = event.index  # type: ignore[union-attr]
                stream.calls.append(StreamedCall(event.name))  # type: ignore[union-attr]
                return self.result("", [_beginning(call, event.name, "")])  # type: ignore[union-attr]
        return self._result(*stream.sort(events))

    def finish(self, tools: list[Any]) -> Any:
        """What was held back at the end of the stream."""
        if self._stream is None or self._over:
            return self.no_result()
        self._over = True
        content, pieces = self._stream.finish()
        return self._result(content, pieces) if pieces else self.result(content, [])

    def _result(self, content: str, pieces: list[CallPiece]) -> Any:
        if pieces:
            self.current_tool_id = pieces[-1][0]
        items = [_piece(call, text) if name is None else _beginning(call, name, text) for call, name, text in pieces]
        return self.result(content, items)

    # When a stream ends, the server compares these two and sends what the first has and the second lacks: nothing. They
    # are computed when asked for, which is once, at the end.

    @property
    def prev_tool_call_arr(self) -> list[dict[str, Any]]:
        return [{"name": call.name, "arguments": call.arguments} for call in self._calls]

    @prev_tool_call_arr.setter
    def prev_tool_call_arr(self, value: object) -> None:
        """Ignored: SGLang's class assigns an empty list at first."""

    @property
    def streamed_args_for_tool(self) -> list[str]:
        return [call.text for call in self._calls]

    @streamed_args_for_tool.setter
    def streamed_args_for_tool(self, value: object) -> None:
        """As above."""

    @property
    def incomplete_tool_call_indices(self) -> set[int]:
        """With a call that was cut off, the finish reason is not `tool_calls`."""
        return set() if self._stream is None else self._stream.cut_off

    @incomplete_tool_call_indices.setter
    def incomplete_tool_call_indices(self, value: object) -> None:
        """As above."""

    @property
    def _calls(self) -> list[StreamedCall]:
        return [] if self._stream is None else self._stream.calls

    def _new_stream(self, tools: list[Any]) -> ToolStream:
        """A stream, as most are copied from one that was made before."""
        if chooses(_FORWARDS) or (content := said(tools)) is None:
            return self._make_stream(tools)
        key = type(self), id(self.format), content
        unused = _unused.get(key)
        if unused is None:
            unused = _unused[key] = self._make_stream(tools), self.format
        return unused[0].anew()

    def _make_stream(self, tools: list[Any], whole: bool = False) -> ToolStream:
        detector: Any = type(self)
        ways = _own_ways(detector)
        if is_set(_FORWARDS) and envs.SGLANG_FORWARD_UNKNOWN_TOOLS.get():
            ways = replace(ways, emits_unknown=True)
        return ToolStream(self.format, ways.typed(known_tools(tools)), ways.unknown_tools, whole=whole)


_unused: LruCache[tuple[type, int, bytes], tuple[ToolStream, Format]] = LruCache(KEPT)
"""Streams that have had no text, by their detector, the identity of the format, which is kept, and the tools."""


@cache
def _own_ways(detector: type[Any]) -> OwnWays:
    """What SGLang's own class of a detector does. It is asked once."""
    theirs: Any = next((base for base in detector.__bases__ if not issubclass(base, ToolParsing | OwnTools)), None)
    tool = Tool(type="function", function=Function(name="known", parameters={}))
    try:
        return own_ways(
            detector.format, lambda text: [one.parameters for one in theirs().detect_and_parse(text, [tool]).calls]
        )
    except Exception:  # there is none, or it needs what it is not given here; ours does not
        return OwnWays(emits_unknown=False)


class ReasoningParsing:
    """The parsing of a reasoning detector. SGLang makes one for each request."""

    format: Format
    """Reasoning, and calls if the family has them: everything else is text, with its markers."""
    greedy: ClassVar[bool] = True
    """Whether to follow SGLang's guess that the prompt has opened the reasoning."""

    def __init__(self, **options: Any) -> None:
        """SGLang's options go to its own class, which knows the defaults of its model: `deepseek-r1` always reasons,
        whatever the guess."""
        begin: Any = super().__init__
        begin(**options)
        state: Any = self
        self._prompt = ""
        """Where SGLang tells it."""
        always = bool(self.format.prompt) and isinstance(self, OwnReasoning)
        self._inside = always or (self.greedy and bool(state.force_reasoning))
        if state.continue_final_message and isinstance(state.previous_content, str):
            self._inside = _left_open(self.format, state.previous_content, self._inside)
        self._in_one_piece = not state.stream_reasoning
        self._must_answer = bool(state._force_nonempty_content)
        self._answered = False
        self._stream: ReasoningStream | None = None
        self._unsaid: list[str] = []
        self._all: list[str] = []

    def detect_and_parse(self, text: str, *_: Any, **__: Any) -> Any:
        """A whole output."""
        stream, parts = self._begin(text)
        reasoning, rest = map("".join, zip(parts, stream.finish(), strict=True))
        if self._must_answer and not rest:
            reasoning, rest = "", reasoning
        return ReasoningResult(normal_text=rest, reasoning_text=reasoning)

    def parse_streaming_increment(self, new_text: str, *_: Any, **__: Any) -> Any:
        stream = self._stream
        if stream is None:
            self._stream, (reasoning, rest) = self._begin(new_text)
        else:
            reasoning, rest = stream.feed(new_text)
        if self._must_answer or self._in_one_piece:
            return self._result(reasoning, rest, over=False)
        return ReasoningResult(rest, reasoning)

    def finish(self) -> Any:
        """What was held back at the end of the stream."""
        if self._stream is None:
            return ReasoningResult()
        stream, self._stream = self._stream, None
        return self._result(*stream.finish(), over=True)

    def _begin(self, text: str) -> tuple[ReasoningStream, tuple[str, str]]:
        """SGLang's class may know what ends the reasoning because a call begins."""
        opens_calls = getattr(self, "tool_start_token", None) or ""
        return begun(self.format, text, inside=self._inside, opens_calls=opens_calls, prompt=self._prompt)

    def _result(self, reasoning: str, rest: str, *, over: bool) -> Any:
        if not (self._must_answer or self._in_one_piece):
            return ReasoningResult(normal_text=rest, reasoning_text=reasoning)
        self._answered = self._answered or bool(rest)
        if self._must_answer and not self._answered:
            self._all.append(reasoning)
            if over:
                return ReasoningResult(normal_text="".join(self._all))
        if self._in_one_piece:
            self._unsaid.append(reasoning)
            reasoning = ""
            if rest or over:
                reasoning, self._unsaid = "".join(self._unsaid), []
        return ReasoningResult(normal_text=rest, reasoning_text=reasoning)


def _left_open(format: Format, text: str, otherwise: bool) -> bool:
    """Whether a prefill leaves the reasoning open."""
    assert format.reasoning is not None
    opened, closed = text.rfind(format.reasoning.open.strip()), text.rfind(format.reasoning.close.strip())
    return otherwise if opened == closed else opened > closed


# As the tokenizer says


@cache
def _calls_of(format: Format) -> Format:
    return compose(tools=format)


class StatedTools(ToolParsing):
    """Calls as the tokenizer's `response_template` has them."""

    def __init__(self, tokenizer: Any = None, **options: Any) -> None:
        self.format = _calls_of(stated_format(tokenizer, "tools"))
        begin: Any = super().__init__
        begin(tokenizer=tokenizer, **options)

    @classmethod
    def parses_without_tools(cls) -> bool:
        """The markers of content have been taken off with the reasoning."""
        return False


class StatedReasoning(ReasoningParsing):
    """Reasoning as the tokenizer's `response_template` has it. SGLang passes the prompt on. Where a grammar of its own
    holds the output, its own class says what that leaves of the markup."""

    force_reasoning = continue_final_message = False

    def __init__(self, tokenizer: Any = None, prefix: str = "", **options: Any) -> None:
        self.format = format = stated_format(tokenizer, "reasoning")
        super().__init__(tokenizer=tokenizer, prefix=prefix, **options)
        self._prompt = prefix
        turn = max((prefix.rfind(end) + len(end) for end in format.ends if end in prefix), default=0)
        self._inside = _left_open(format, prefix[turn:], bool(format.prompt))
        if options.get("grammar_start") is not None:
            theirs: Any = super(ReasoningParsing, self)
            for name in ("detect_and_parse", "parse_streaming_increment", "finish"):
                setattr(self, name, getattr(theirs, name))


# For formats without a class in SGLang


class OwnTools(BaseFormatDetector):  # type: ignore[misc]
    """The base of a tool-call detector: constraints."""

    format: Format

    def supports_structural_tag(self) -> bool:
        """Without xgrammar, SGLang asks for calls as plain JSON and reads them itself."""
        return HAS_TAGS

    def get_structural_tag(
        self,
        tools: list[Any] | None = None,
        tool_choice: Any = "auto",
        thinking_mode: bool = False,
        parallel_tool_calls: bool = True,
    ) -> Any:
        """The constraint, without the reasoning before it, which SGLang leaves to the reasoning parser."""
        if not HAS_TAGS or not tools:
            return None
        definitions = known_tools(tools)
        if not isinstance(tool_choice, str):
            tool_choice = {"type": "function", "function": {"name": tool_choice.function.name}}

        def tag_for(tools: Tools) -> dict[str, Any]:
            return self._tag(tools, tool_choice, parallel_tool_calls)

        try:
            tag = tag_for(definitions) if tool_choice == "auto" else following_schemas(tag_for, definitions)
        except UnbraidError as error:
            logger.warning("The schemas of strict tools are not enforced: %s", error)
            tag = tag_for(Tools({"name": name} for name in definitions))
        return StructuralTag.model_validate(tag)

    def _tag(self, tools: Tools, tool_choice: str | Mapping[str, Any], parallel_tool_calls: bool) -> dict[str, Any]:
        grammar = constraint(
            self.format,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            reasoning=None,
            response_format=None,
            vocabulary=None,
            prompt=None,
        )
        return grammar.to_structural_tag()

    def structure_info(self) -> Any:
        """SGLang calls this only on detectors without structural tags."""
        raise NotImplementedError(f"{self.format.name}: see get_structural_tag")


class OwnReasoning(BaseReasoningFormatDetector):  # type: ignore[misc]
    """The base of a reasoning detector: markers and defaults."""

    format: Format

    def __init__(self, **options: Any) -> None:
        assert self.format.reasoning is not None
        tags = self.format.reasoning
        # Unless the prompt always opens the reasoning, a request must ask for it.
        default = "always" if self.format.prompt else "explicit_thinking"
        super().__init__(tags.open.strip(), tags.close.strip(), reasoning_default=default, **options)


class StepAudio2Detector(ToolParsing, OwnTools):
    """Calls of Step-Audio 2."""

    format = compose(tools=STEP_AUDIO_2)


class StepAudio2ReasoningDetector(ReasoningParsing, OwnReasoning):
    """Reasoning of Step-Audio 2: without `<think>` there is none, and with it anywhere in the speech."""

    format = as_chosen(compose(reasoning=STEP_AUDIO_2, tools=STEP_AUDIO_2, audio=STEP_AUDIO_2))
    greedy = False
