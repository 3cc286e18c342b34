"""Our detectors in SGLang's registries: `unbraid-NAME` beside its own, or in their place. Imports SGLang.

A name of SGLang's says more than what to parse. Its server asks it how to write the prompt (`kimi_k3`) and the ids of
calls (`kimi_k2`), and where the reasoning begins (`minimax`). So a server that is started with `unbraid-kimi_k2` is
told `kimi_k2`, and our detector is put in the place of SGLang's under that name (`tell_the_server`). Processes that
the server starts are told by an environment variable.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator, Mapping
from functools import cache, wraps
from types import ModuleType
from typing import Any, NamedTuple

from sglang.srt.entrypoints.openai.protocol import Function, Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser

from ...core.grammar import Format
from ...errors import UnknownFormat
from ...formats import all_formats, compose, find
from ..common import as_chosen
from ..self_test import TOOL, Reply, failures
from .detectors import (
    OwnReasoning,
    OwnTools,
    ReasoningParsing,
    StatedReasoning,
    StatedTools,
    StepAudio2Detector,
    StepAudio2ReasoningDetector,
    ToolParsing,
)
from .hooks import SUPPORTED

_log = logging.getLogger(__name__)
_NOT_TOLD = (
    f"unbraid's plug-in is made for {SUPPORTED}: this SGLang's server cannot be told what `unbraid-NAME` stands for. "
    "Leave the names as they are, and set UNBRAID_SGLANG_REPLACE=1"
)

PREFIX = "unbraid-"
PASSED_ON = frozenset({"minimax-append-think"})
"""SGLang's detectors that parse nothing: this one leaves all where it is. With the prefix they are SGLang's own."""
TEMPLATE = "response_template"
"""SGLang's name for what the tokenizer says itself."""
CHOSEN = "UNBRAID_SGLANG_CHOSEN"
"""The environment variable with the detectors that the server was started with, for the processes that it starts:
`tool_call_parser:kimi_k2,reasoning_parser:kimi_k2`."""


class RegisteredNames(NamedTuple):
    """The names that were registered."""

    tool_call_parsers: list[str]
    reasoning_parsers: list[str]


def register(replace: bool) -> RegisteredNames:
    """Register our detectors with SGLang; with `replace`, also under the names of its own."""
    chosen = os.environ.get(CHOSEN, "").split(",")
    names: list[list[str]] = []
    for field, registry in _registries().items():
        parsing, own, more = _KINDS[field]
        theirs = {name: _original(detector) for name, detector in registry.items()}
        ours = _beside(theirs, parsing, own) | more
        for name in theirs:
            has_ours = name == TEMPLATE or _known(name, theirs, parsing) is not None
            if has_ours and (replace or f"{field}:{name}" in chosen):
                ours[name] = ours[f"{PREFIX}{name}"]
        registry.update(ours)
        names.append(list(ours))
    return RegisteredNames(*names)


_KINDS: dict[str, tuple[type, type, dict[str, type]]] = {
    "tool_call_parser": (ToolParsing, OwnTools, {"step_audio_2": StepAudio2Detector}),
    "reasoning_parser": (ReasoningParsing, OwnReasoning, {"step-audio2": StepAudio2ReasoningDetector}),
}
"""By the name of the server's argument: our parsing, the base for formats that SGLang lacks, and further names."""


def _registries() -> dict[str, dict[str, type]]:
    """SGLang's detectors, by the name of the server's argument."""
    return {
        "tool_call_parser": FunctionCallParser.ToolCallParserEnum,
        "reasoning_parser": ReasoningParser.DetectorMap,
    }


def _beside(theirs: Mapping[str, type], parsing: type, own: type) -> dict[str, type]:
    """Our detectors of one kind by their names with the prefix: those of the formats, and SGLang's own."""
    formats = {name: format for name in theirs if (format := _known(name, theirs, parsing)) is not None}
    detectors: dict[str, type] = {}
    for format, aliases in all_formats().items():
        if _has(format, parsing):
            base = next((theirs[name] for name, other in formats.items() if other is format), own)
            names = (f"{PREFIX}{name}".lower() for name in (format.name, *aliases))
            detectors |= dict.fromkeys(names, _detector(format, parsing, base))
    detectors |= {f"{PREFIX}{name}": _detector(format, parsing, theirs[name]) for name, format in formats.items()}
    if TEMPLATE in theirs:
        detectors[f"{PREFIX}{TEMPLATE}"] = _stated_detector(parsing, theirs[TEMPLATE])
    return detectors | {f"{PREFIX}{name}": theirs[name] for name in PASSED_ON & theirs.keys()}


@cache
def _detector(format: Format, parsing: type, base: type) -> type:
    """SGLang's class `base` with our parsing."""
    parts = {"tools": format.name if format.tools is not None else None}
    if parsing is ReasoningParsing:
        parts["reasoning"] = format.name
    # For a model that speaks, a wrong guess would turn all of its speech into reasoning.
    fields = {"format": as_chosen(compose(**parts)), "greedy": format.speech is None, "__module__": __name__}
    return type(f"Unbraid{base.__name__.lstrip('_')}", (parsing, base), fields)


@cache
def _stated_detector(parsing: type, base: type) -> type:
    """SGLang's class for what the tokenizer says, with our parsing."""
    mixin = StatedTools if parsing is ToolParsing else StatedReasoning
    return type(f"Unbraid{base.__name__}", (mixin, base), {"__module__": __name__})


def _original(detector: type) -> type:
    """SGLang's own class, also if ours has replaced it."""
    return detector.__bases__[1] if issubclass(detector, ToolParsing | ReasoningParsing) else detector


def _known(name: str, theirs: Mapping[str, type], parsing: type) -> Format | None:
    """The format that can replace SGLang's detector of that name."""
    if name.startswith(PREFIX) or name in PASSED_ON or _asks_the_tokenizer(theirs[name]):
        return None
    try:
        format = find(name)
    except UnknownFormat:
        return None
    return format if _has(format, parsing) else None


def _asks_the_tokenizer(detector: type) -> bool:
    """Whether SGLang's class depends on the tokenizer (`hunyuan` has two generations of tags; `beam` has a response
    template, which the server uses as well). One format cannot replace that."""
    return "tokenizer" in inspect.signature(detector).parameters


def _has(format: Format, parsing: type) -> bool:
    return (format.tools if parsing is ToolParsing else format.reasoning) is not None


def self_test() -> Iterator[str]:
    """What goes wrong if replies are read as SGLang's server does it."""
    tools = [Tool(type="function", function=Function(**TOOL))]

    def read(format: Format, text: str, whole: bool) -> Reply:
        reasons, calls = _detector(format, ReasoningParsing, OwnReasoning)(), _detector(format, ToolParsing, OwnTools)()
        if whole:
            first = reasons.detect_and_parse(text)
            second = calls.detect_and_parse(first.normal_text, tools)
            items = [(call.name, call.parameters) for call in second.calls]
            return first.reasoning_text, second.normal_text, items
        thoughts, content, pieces = "", "", dict[int, tuple[str, str]]()
        steps = [*(reasons.parse_streaming_increment(piece) for piece in text), reasons.finish()]
        for at, step in enumerate(steps):
            thoughts += step.reasoning_text or ""
            parts = [calls.parse_streaming_increment(step.normal_text or "", tools)]
            for part in parts if at < len(steps) - 1 else [*parts, calls.finish(tools)]:
                content += part.normal_text
                for item in part.calls:
                    name, arguments = pieces.get(item.tool_index, ("", ""))
                    pieces[item.tool_index] = (item.name or name, arguments + item.parameters)
        return thoughts, content, list(pieces.values())

    return failures(read)


# What the server is told


def tell_the_server(module: ModuleType) -> None:
    """Have the arguments of SGLang's server (`sglang.srt.server_args`) name its own detectors."""
    arguments: Any = getattr(module, "ServerArgs", None)
    resolve = getattr(arguments, "resolve_once", None)
    if resolve is None:
        _log.error("%s", _NOT_TOLD)
        return
    if hasattr(resolve, "__wrapped__"):
        return

    @wraps(resolve)
    def resolve_once(self: Any) -> None:
        for field in _KINDS:
            name = getattr(self, field, None)
            own = own_name(field, name)
            if own != name:  # SGLang asks twice, and what was resolved cannot be written any more
                setattr(self, field, own)
        resolve(self)

    arguments.resolve_once = resolve_once


def own_name(field: str, name: str | None) -> str | None:
    """SGLang's own name of the detector `unbraid-NAME`, if it has one; from now on our detector has that name too."""
    registry = _registries()[field]
    own = (name or "").removeprefix(PREFIX)
    if name is None or own == name or own not in registry or name not in registry:
        return name
    if not issubclass(registry[name], _original(registry[own])):
        return name  # SGLang's asks the tokenizer, ours does not
    if own not in PASSED_ON:
        chosen = [*os.environ.get(CHOSEN, "").split(","), f"{field}:{own}"]
        os.environ[CHOSEN] = ",".join(filter(None, dict.fromkeys(chosen)))
        register(False)
    return own
