"""unbraid: what a language model writes, taken apart into what its reader needs.

parser = unbraid.parser("qwen3", tools=tools)
for piece in stream:
    for event in parser.feed(piece):
        ...
parser.finish()
parser.message
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from .constraints import Constraint, InvalidSchema, NotRegular, NotTokens, Unenforced
from .constraints import constraint as _constraint
from .constraints import forced_prefix as _forced_prefix
from .core import diagnostics
from .core.events import (
    Content,
    Diagnostic,
    Event,
    Language,
    Markup,
    Reasoning,
    SpeechAudio,
    SpeechText,
    Timestamp,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from .core.grammar import Format
from .core.limits import Limits
from .core.machine.machine import Parser, UnknownTools
from .core.message import Message, Part, Speech, Tag, Text, ToolCall
from .core.render import render as _render
from .core.tools import Tools
from .errors import InvalidFormat, InvalidSnapshot, InvalidTools, MissingTokens, UnbraidError, UnknownFormat
from .formats import all_formats, compose, find, register
from .tokens import vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from .templates import ChatTemplate
    from .templates.detection import Detection

__version__ = "0.1.0"


def parser(
    format: str | Format,
    *,
    tools: Iterable[Mapping[str, Any]] | Tools | None = None,
    unknown_tools: UnknownTools = "text",
    tokenizer: object | None = None,
    prompt: str | Sequence[int] | None = None,
    separate_reasoning: bool = True,
    keep_message: bool = True,
    markup: bool = False,
    limits: Limits | None = None,
    seed: int | None = None,
) -> Parser:
    """A parser for one response. `format` is a name that `unbraid formats` lists, or a grammar; see `Parser` for the
    rest. `tokenizer` is one of `tokenizers`, `transformers`, `tiktoken` or `mistral-common`, or a `Vocabulary`."""
    return Parser(
        format if isinstance(format, Format) else find(format),
        tools=tools if tools is None or isinstance(tools, Tools) else Tools(tools),
        unknown_tools=unknown_tools,
        vocabulary=None if tokenizer is None else vocabulary(tokenizer),
        prompt=prompt,
        separate_reasoning=separate_reasoning,
        keep_message=keep_message,
        markup=markup,
        limits=limits,
        seed=seed,
    )


class ParserOptions(TypedDict, total=False):
    """What `parser` takes besides the format."""

    tools: Iterable[Mapping[str, Any]] | Tools | None
    unknown_tools: UnknownTools
    tokenizer: object | None
    prompt: str | Sequence[int] | None
    separate_reasoning: bool
    keep_message: bool
    markup: bool
    limits: Limits | None
    seed: int | None


def parse(format: str | Format, output: str | Sequence[int], **options: Unpack[ParserOptions]) -> Message:
    """Parse a whole response, given as text or, with `tokenizer=…`, as token ids. Options are those of `parser`."""
    if isinstance(output, bytes):
        raise UnbraidError("parse takes text or token ids, not bytes: decode them first")
    one = parser(format, **options)
    if isinstance(output, str):
        one.feed(output)
    else:
        one.feed_tokens(output)
    one.finish()
    return one.message


def constraint(
    format: str | Format,
    *,
    tools: Iterable[Mapping[str, Any]] | Tools | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
    parallel_tool_calls: bool | None = None,
    reasoning: bool | None = None,
    response_format: Mapping[str, Any] | None = None,
    tokenizer: object | None = None,
    prompt: str | Sequence[int] | None = None,
) -> Constraint:
    """What a model of this format may write, for engines that enforce it while they sample.

    tools: the request's tools. The arguments of those with `"strict": true` follow their schemas.
    tool_choice: "auto" (the default): calls may come; "none"; "required": nothing else; or a function to call, as in
        the chat API.
    parallel_tool_calls: False for no more than one call.
    reasoning: True where the model must reason first, False where it must not; it may by default.
    response_format: as in the chat API: the answer is JSON, and follows a schema.
    tokenizer: as in `parser`. Without one, markers are text; with one, they are the tokens that the model writes.
    prompt: as in `parser`.
    """
    return _constraint(
        format if isinstance(format, Format) else find(format),
        tools=[] if tools is None else tools,
        tool_choice=tool_choice,
        parallel_tool_calls=parallel_tool_calls,
        reasoning=reasoning,
        response_format=response_format,
        vocabulary=None if tokenizer is None else vocabulary(tokenizer),
        prompt=prompt,
    )


def forced_prefix(steps: Iterable[Iterable[str]], *, tokenizer: object) -> Constraint:
    """One of the tokens of each step, one step after the other; then any text. Whisper's output begins so:
    `[["<|de|>", "<|fr|>"], ["<|transcribe|>"], ["<|notimestamps|>"]]`."""
    return _forced_prefix(steps, vocabulary(tokenizer))


def detect(
    template: str | ChatTemplate | Path | Mapping[str, Any], *, bos_token: str = "", eos_token: str = ""
) -> Detection:
    """The format that a chat template speaks, and why: found by rendering it, derived where none is known. It says
    whether it is verified; `Detection.required()` gives the format, or an error that says what to do.

    template: its text; a `Path` to a model's folder, to a template, a `tokenizer_config.json` or a GGUF file;
        or a tokenizer's configuration, as that JSON has it.
    bos_token, eos_token: what a template that is given as text may call by name.

    Needs jinja2 (`unbraid[server]` brings it).
    """
    from .templates.detection import detect as detect_template

    return detect_template(template, bos_token=bos_token, eos_token=eos_token)


def render(format: str | Format, message: Message) -> str:
    """The raw text that a model of this format would write for `message`."""
    return _render(format if isinstance(format, Format) else find(format), message)


__all__ = [
    "Constraint",
    "Content",
    "Diagnostic",
    "Event",
    "Format",
    "InvalidFormat",
    "InvalidSchema",
    "InvalidSnapshot",
    "InvalidTools",
    "Language",
    "Limits",
    "Markup",
    "Message",
    "MissingTokens",
    "NotRegular",
    "NotTokens",
    "Parser",
    "Part",
    "Reasoning",
    "Speech",
    "SpeechAudio",
    "SpeechText",
    "Tag",
    "Text",
    "Timestamp",
    "ToolCall",
    "ToolCallArguments",
    "ToolCallEnd",
    "ToolCallStart",
    "Tools",
    "UnbraidError",
    "Unenforced",
    "UnknownFormat",
    "all_formats",
    "compose",
    "constraint",
    "detect",
    "diagnostics",
    "find",
    "forced_prefix",
    "parse",
    "parser",
    "register",
    "render",
]
