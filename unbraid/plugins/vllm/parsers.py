"""Each format as a `ToolParser` and a `ReasoningParser` of vLLM.

vLLM makes one of each for a response. If both are ours, a `CombinedParser` replaces them and these classes only carry
the format. Beside a parser of vLLM's own they do the work themselves, on text, since text is what vLLM passes from one
to the other. What vLLM asks of them is listed in `hooks`. Their methods take more arguments than they read, since a
later vLLM may pass some that are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import Any, TypeVar

from vllm.entrypoints.generate.base.protocol import (
    DeltaMessage,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.reasoning.abs_reasoning_parsers import ReasoningParser, ReasoningParserManager
from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager

from ...core.events import Event, ToolCallArguments, ToolCallEnd, ToolCallStart
from ...core.grammar import Format
from ...formats import find
from ...parsing import UnknownTools
from ..common import OwnWays, as_chosen, own_ways, stated_format
from .deltas import as_delta, without_blank
from .reasoning import (
    DecodedTokens,
    ReasoningCounter,
    ReasoningMarkers,
    ReasoningPrefix,
    decoded,
    without_answer_markers,
)
from .request_constraints import constrain, show_markers, tools_of
from .response_reader import PROMPT_END, ResponseReader, program_of, start_of_output, vocabulary_of

T = TypeVar("T")


def class_of(place: tuple[str, str] | None) -> Any:
    """vLLM's own class, by its module and name; None if it has none, or not what the class needs."""
    if place is None:
        return None
    try:
        return getattr(import_module(place[0]), place[1], None)
    except ImportError:
        return None


class Counterpart:
    """vLLM's reasoning parser of the same name, asked where the text alone does not say what to do.

    Where does an output begin if nobody knows its prompt? vLLM's parsers each have their own answer, by what the
    request tells the template (`enable_thinking`, `thinking`, `reasoning_effort`, …). We do not repeat these answers
    but ask the parser, with a text of one letter. Nothing is asked if the prompt is known.
    """

    def __init__(self, theirs: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        """theirs: vLLM's class; None if there is none."""
        self._theirs = theirs
        self._arguments = arguments
        self._options = options
        self._parser: Any = None

    def check_request(self) -> None:
        """Raise what vLLM's own parser raises for this request. Missing tokens are checked at start."""
        options = {name: value for name, value in self._options.items() if name != "chat_template_kwargs"}
        if self._theirs is None or not self._options.get("chat_template_kwargs"):
            return
        try:
            self._parser = self._theirs(*self._arguments, **self._options)
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
        """Whether a streamed output begins inside the reasoning. Its end cannot show that yet."""
        if self._theirs is None:
            return False
        fresh = Counterpart(self._theirs, self._arguments, self._options)
        first: tuple[Any, ...] = ("", "x", "x", [], [0], [0])
        return fresh._ask(lambda parser: bool(parser.extract_reasoning_streaming(*first).reasoning), False)

    def must_answer(self, request: Any, open: str, blank: str = "") -> bool:
        """Whether reasoning without an answer is the answer (`force_nonempty_content`). blank: what follows it, the
        marker that closes it and whitespace."""
        if not getattr(request, "chat_template_kwargs", None):
            return False
        text = f"{open}x{blank}"
        return self._ask(lambda parser: bool(parser.extract_reasoning(text, request) == (None, "x")), False)

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
            if self._parser is None:
                self._parser = self._theirs(*self._arguments, **self._options)
            return question(self._parser)
        except Exception:  # it may need what this tokenizer or this request does not have; ours does not
            return otherwise


_OUTPUT_START = 16
"""Tokens of the output that show whether it begins with reasoning."""


_WAYS: dict[type, OwnWays] = {}
"""Our tool parsers, and what vLLM's own ones do."""


class UnbraidToolParser(ToolParser):  # type: ignore[misc]
    """The calls of one response; all else is content."""

    format: Format
    supports_required_and_named = False
    """False: required and named calls are in the model's own notation, not in the plain JSON that vLLM would look
    for."""
    engine_based_streaming = True
    """True: vLLM passes deltas and calls `finish_streaming` at the end."""
    skip_reasoning_parsing = False
    """vLLM sets it if there is no reasoning parser. Then the ids are complete and can be parsed."""
    strict_level = 0
    """How strict vLLM's own parser of that name is if nobody says it."""
    theirs: Any = None
    """vLLM's own parser of that name."""

    def __init__(self, tokenizer: Any, tools: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, tools, *args, **kwargs)
        program_of(self.format, vocabulary_of(tokenizer))  # raises at server start if tokens are missing
        self._reader: ResponseReader | None = None
        self._fragments: list[str] = []

    def adjust_request(self, request: Any, *_: Any, **__: Any) -> Any:
        self.check_request(request)
        if request.tools and request.tool_choice != "none":
            show_markers(request, self.format, self.model_tokenizer)
        reasons, level = not self.skip_reasoning_parsing, self.strict_level
        constrain(request, self.format, self.model_tokenizer, reasoning_parser=reasons, strict_level=level)
        return request

    def check_request(self, request: Any) -> None:
        """Raise what vLLM's own parser raises for what the request tells the template (`tool_call_format`)."""
        if self.theirs is None or not getattr(request, "chat_template_kwargs", None):
            return
        bare = request.model_copy(update={"tools": None, "tool_choice": "none"})
        try:
            self.theirs(self.model_tokenizer).adjust_request(bare)
        except ValueError:
            bare.chat_template_kwargs = None
            try:
                self.theirs(self.model_tokenizer).adjust_request(bare)
            except Exception:
                return
            raise
        except Exception:
            return

    def extract_tool_calls(self, model_output: str, request: Any, *_: Any, **__: Any) -> Any:
        said = without_blank(as_delta(self._new_reader(request, whole=True).whole(model_output, ()), self.format))
        calls = [
            ToolCall(id=call.id, function=FunctionCall(name=call.function.name, arguments=call.function.arguments))
            for call in (said.tool_calls if said else ())
        ]
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=said.content if said else None
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
        *_: Any,
        **__: Any,
    ) -> Any:
        if self._reader is None:
            self._reader = self._new_reader(request)
        return self._delta(self._reader.feed(delta_text, delta_token_ids, False))

    def finish_streaming(self) -> Any:
        """What was held back, at the end of the output."""
        reader, self._reader = self._reader, None
        return None if reader is None else self._delta(reader.feed("", (), True))

    def ways(self, request: Any) -> OwnWays:
        """What vLLM's own parser does. It is asked once."""
        kind = type(self)
        if kind not in _WAYS:
            _WAYS[kind] = self._own_ways(request)
        return _WAYS[kind]

    def _own_ways(self, request: Any) -> OwnWays:
        if self.theirs is None:
            return OwnWays(emits_unknown=False)

        def read(text: str) -> list[str]:
            parser = self.theirs(self.model_tokenizer, getattr(request, "tools", None))
            return [call.function.arguments for call in parser.extract_tool_calls(text, request).tool_calls]

        try:
            return own_ways(self.format, read)
        except Exception:  # it may need what this tokenizer does not have; nearly all of vLLM's pass such calls on
            return OwnWays(emits_unknown=True)

    def _new_reader(self, request: Any, whole: bool = False) -> ResponseReader:
        """Who asks without tools, or even without a request, gets all calls, as from vLLM's own parsers. What comes is
        content: the reasoning has been taken off, or nobody separates it. Only where a header says what a message is,
        the prompt has begun it."""
        has_tools = bool(getattr(request, "tools", None))
        tools = tools_of(request, self.tools) if has_tools or self.tools else None
        ways = self.ways(request)
        unknown: UnknownTools = "emit"
        if has_tools:
            unknown = ways.unknown_tools if tools else "text"
        return ResponseReader(
            self.format,
            self.model_tokenizer,
            request,
            tools=None if tools is None else ways.typed(tools),
            unknown_tools=unknown,
            separate_reasoning=False,
            prompt=None if self.format.headers else "",
            by_ids=self.skip_reasoning_parsing,
            whole=whole,
        )

    def _delta(self, events: list[Event]) -> Any:
        """The events as a delta. Calls are also noted where vLLM looks for arguments that were not sent."""
        if not events:
            return None
        for event in events:
            match event:
                case ToolCallStart(index, _, name):
                    self.current_tool_id, self.current_tool_name_sent = index, True
                    self.prev_tool_call_arr.append({"name": name, "arguments": ""})
                    self.streamed_args_for_tool.append("")
                    self._fragments = []
                case ToolCallArguments():
                    self._fragments.append(event.fragment)
                case ToolCallEnd(index):
                    arguments = "".join(self._fragments)
                    self.prev_tool_call_arr[index]["arguments"] = self.streamed_args_for_tool[index] = arguments
        return as_delta(events, self.format)


class UnbraidReasoningParser(ReasoningParser):  # type: ignore[misc]
    """The reasoning of one response, up to the first words of content. The rest goes to the tool parser as the model
    wrote it."""

    format: Format
    theirs: Any = None
    """vLLM's own parser of that name."""
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self.counterpart = Counterpart(self.theirs, (tokenizer, *args), kwargs)
        self.counterpart.check_request()
        self._said: list[str] = []
        """The reasoning of a stream: whether it is to be the answer, is asked at the end."""
        vocabulary = vocabulary_of(tokenizer)
        program_of(self.format, vocabulary)
        self._markers = ReasoningMarkers(self.format, vocabulary or DecodedTokens(tokenizer))
        self._counter: ReasoningCounter | None = None
        self._prefix: ReasoningPrefix | None = None
        self._prompt: str | None = None
        self._output_begins: int | None = None
        self._closed_at: int | None = None

    @property
    def reasoning_start_str(self) -> str:
        return self._markers.open

    @property
    def reasoning_end_str(self) -> str:
        return self._markers.close

    def adjust_request(self, request: Any, *_: Any, **__: Any) -> Any:
        show_markers(request, self.format, self.model_tokenizer)
        return request

    # Token ids

    def is_reasoning_end(self, input_ids: Sequence[int], *_: Any, **__: Any) -> bool:
        """Whether a prompt or an output closes the reasoning of its turn, or there is none."""
        marker = self._markers.last(input_ids)[0]
        if marker == "close" or (marker == "open" and not self.format.calls_in_reasoning):
            return marker == "close"
        return self.counterpart.ended(input_ids[self._markers.turn(input_ids) :])  # it knows what else ends it: a call

    def is_reasoning_end_streaming(
        self, input_ids: Sequence[int], delta_ids: Iterable[int], *_: Any, **__: Any
    ) -> bool:
        """Whether the reasoning ends with `delta_ids`, the last of the ids, or before them; also if the model did not
        reason at all."""
        new = len(list(delta_ids))
        closed = self._closed_at
        if self.counterpart.never_waits:
            return True
        if closed is not None and self._markers.is_closed_at(input_ids, closed):
            return True
        self._closed_at = self._markers.closed_at(input_ids, new or len(input_ids))
        if self._closed_at is not None:
            return True
        if self._output_begins is None:
            self._output_begins = len(input_ids) - new
        output = input_ids[self._output_begins : self._output_begins + _OUTPUT_START]
        if len(input_ids) > self._output_begins + _OUTPUT_START or not self._markers.begins_otherwise(output):
            return False
        before = self._markers.last(input_ids[: self._output_begins])[0]
        return before != "open" and not (before is None and self.opens)

    def extract_content_ids(self, input_ids: list[int], *_: Any, **__: Any) -> list[int]:
        marker, after = self._markers.last(input_ids)
        if marker == "open" or (marker is None and self.opens):
            return []
        return input_ids[after:]

    def count_reasoning_tokens(self, token_ids: Sequence[int], *_: Any, **__: Any) -> int:
        if self._counter is None:
            vocabulary = vocabulary_of(self.model_tokenizer) or DecodedTokens(self.model_tokenizer)
            start = self._prompt
            if start is None and self.opens and not self._markers.begins_open(token_ids[:_OUTPUT_START]):
                start = self._markers.open
            self._counter = ReasoningCounter(self.format, vocabulary, start)
        return self._counter.count(token_ids)

    # Text

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int], *_: Any, **__: Any) -> None:
        if not prompt_token_ids:  # it came as embeddings, and nobody knows it
            return
        start = start_of_output(prompt_token_ids, self.format, self.model_tokenizer)
        if not isinstance(start, str):
            start = decoded(self.model_tokenizer, start[-PROMPT_END:])
        self._prompt = start

    @property
    def opens(self) -> bool:
        """Whether an output begins inside the reasoning if nobody says what the prompt was. Where there are headers,
        the prompt has begun one, and the output says which."""
        if self.format.headers is not None:
            return False
        return bool(self.format.prompt) or self.counterpart.opens(otherwise=False)

    def extract_reasoning(self, model_output: str, request: Any, *_: Any, **__: Any) -> tuple[str | None, str | None]:
        """vLLM passes no prompt here. If the reasoning is closed but not opened, the prompt has opened it."""
        prefix = ReasoningPrefix(self.format, self._start(model_output))
        reasoning, content = map("".join, zip(prefix.feed(model_output), prefix.finish(), strict=True))
        content = without_answer_markers(self.format, content)
        if not content.strip():
            at = model_output.rfind(self._markers.close)
            if self.counterpart.must_answer(request, self._markers.open, model_output[at:] if at >= 0 else ""):
                reasoning, content = content, reasoning
        return reasoning or None, content or None

    def _start(self, output: str) -> str | None:
        """The end of the prompt of a whole output."""
        if self.format.headers is not None:
            return self.format.prompt if self._prompt is None else self._prompt
        closed, opened = output.find(self._markers.close), output.find(self._markers.open)
        if closed >= 0 and not 0 <= opened < closed and self.counterpart.opens_what_closes(self._markers.close):
            return self._markers.open
        if self._prompt is None and not output.lstrip().startswith(self._markers.open) and self.opens:
            return self._markers.open
        return self._prompt

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        *_: Any,
        **__: Any,
    ) -> Any:
        if self._prefix is None:
            self._prefix = ReasoningPrefix(self.format, self._start_of_stream())
        return self._note(_delta(*self._prefix.feed(delta_text)))

    def _start_of_stream(self) -> str | None:
        """The end of the prompt of a streamed output."""
        if self._prompt is not None:
            return self._prompt
        if self.format.headers is not None:
            return self.format.prompt
        return self._markers.open if self.opens or self.counterpart.opens_streams() else None

    def get_streaming_fallback_content(self, text: str, request: Any) -> str | None:
        """What vLLM sends as the answer at the end of a stream that had none."""
        if not self.counterpart.must_answer(request, self._markers.open):
            return None
        return "".join(self._said) or None

    def _note(self, delta: Any) -> Any:
        if delta is not None and delta.reasoning:
            self._said.append(delta.reasoning)
        return delta

    def has_engine_confirmed_reasoning_end(self, *_: Any, **__: Any) -> bool:
        return self._prefix is not None and self._prefix.over

    def finish_streaming(self) -> Any:
        """What was held back, at the end of the output or of the reasoning."""
        return None if self._prefix is None else self._note(_delta(*self._prefix.finish()))


def _delta(reasoning: str, content: str) -> Any:
    said = {name: text for name, text in (("reasoning", reasoning), ("content", content)) if text}
    return DeltaMessage(**said) if said else None


@cache
def tool_parser(format: Format, theirs: Any) -> Any:
    """The class for one format. theirs: vLLM's class of that name."""
    level = getattr(theirs, "default_tool_strict_level", None)
    fields = {"format": format, "strict_level": int(level or 0), "theirs": theirs}
    return type(f"ToolParser({format.name})", (UnbraidToolParser,), fields)


@cache
def reasoning_parser(format: Format, theirs: Any) -> Any:
    """The class for one format. theirs: vLLM's class of that name."""
    return type(f"ReasoningParser({format.name})", (UnbraidReasoningParser,), {"format": format, "theirs": theirs})


class TemplateToolParser(UnbraidToolParser):
    """Calls as the tokenizer's `response_template` has them."""

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        self.format = stated_format(tokenizer, "tools")
        super().__init__(tokenizer, *args, **kwargs)


class TemplateReasoningParser(UnbraidReasoningParser):
    """Reasoning as the tokenizer's `response_template` has it."""

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        self.format = stated_format(tokenizer, "reasoning")
        super().__init__(tokenizer, *args, **kwargs)


@cache
def template_tool_parser(theirs: Any) -> Any:
    """theirs: vLLM's class, if this version has one."""
    return type("ToolParser(response_template)", (TemplateToolParser,), {"format": None, "theirs": theirs})


@cache
def template_reasoning_parser(theirs: Any) -> Any:
    """As above."""
    return type("ReasoningParser(response_template)", (TemplateReasoningParser,), {"format": None, "theirs": theirs})


def __getattr__(name: str) -> Any:
    """The class that `names` lists as `tools hermes hermes` or `reasoning qwen3 holo2`."""
    kind, _, what = name.partition(" ")
    if kind not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    format, _, theirs = what.partition(" ")
    make, registry, by_template = _MAKERS[kind]
    own = class_of(registry.lazy_parsers.theirs.get(theirs))
    return make(as_chosen(find(format)), own) if format else by_template(own)


_MAKERS: dict[str, tuple[Callable[[Format, Any], Any], Any, Callable[[Any], Any]]] = {
    "tools": (tool_parser, ToolParserManager, template_tool_parser),
    "reasoning": (reasoning_parser, ReasoningParserManager, template_reasoning_parser),
}
