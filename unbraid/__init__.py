"""unbraid: what a language model writes, taken apart into what its reader needs.

parser = unbraid.Parser("qwen3", tools=tools)
for piece in stream:
    for event in parser.feed(piece):
        ...
parser.finish()
parser.message

Importing this loads nothing else: each name is loaded when it is first used. So a plug-in that an engine loads in all
of its processes costs nothing where it is not used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from .constraints import Constraint, NotRegular, NotTokens, Unenforced
    from .core import diagnostics
    from .core.custom_tools import CustomInput, CustomTool
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
    from .core.message import Message, Part, Speech, Tag, Text, ToolCall
    from .core.tools import Tools
    from .errors import (
        InvalidFormat,
        InvalidSchema,
        InvalidSnapshot,
        InvalidTools,
        MissingTokens,
        SchemaWarning,
        UnbraidError,
        UnknownFormat,
    )
    from .formats import all_formats, compose, find
    from .guessing import Guess
    from .parsing import Parser, parse
    from .rollouts import Renderer
    from .templates import ChatTemplate, PartHook
    from .templates.detection import Detection
    from .version import __version__ as __version__

    parser = Parser

_HOMES = {
    "constraints": "Constraint NotRegular NotTokens Unenforced",
    "core.custom_tools": "CustomInput CustomTool",
    "core.events": "Content Diagnostic Event Language Markup Reasoning SpeechAudio SpeechText Timestamp "
    "ToolCallArguments ToolCallEnd ToolCallStart",
    "core.grammar": "Format",
    "core.limits": "Limits",
    "core.message": "Message Part Speech Tag Text ToolCall",
    "core.tools": "Tools",
    "errors": "InvalidFormat InvalidSchema InvalidSnapshot InvalidTools MissingTokens SchemaWarning UnbraidError "
    "UnknownFormat",
    "formats": "all_formats compose find",
    "guessing": "Guess",
    "parsing": "Parser parse",
    "rollouts.renderer": "Renderer",
    "version": "__version__",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
"""Where each name is from. It is loaded when the name is first used."""


def __getattr__(name: str) -> Any:
    if name == "parser":  # the same as `Parser`: `unbraid.parser("qwen3", tools=tools)`
        value = __getattr__("Parser")
    elif name == "diagnostics":
        value = import_module(f"{__name__}.core.diagnostics")
    elif name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
    from .constraints import constraint as build
    from .formats import resolve
    from .tokens import vocabulary

    return build(
        resolve(format),
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
    from .constraints import forced_prefix as build
    from .tokens import vocabulary

    return build(steps, vocabulary(tokenizer))


def detect(
    template: str | ChatTemplate | Path | Mapping[str, Any], *, bos_token: str = "", eos_token: str = ""
) -> Detection:
    """The format that a chat template speaks, and why: found by rendering it, derived where none is known. It says
    whether it is verified; `Detection.required()` gives the format, or an error that says what to do.

    template: its text; a `Path` to a model's folder, to a template, a `tokenizer_config.json` or a GGUF file;
        or a tokenizer's configuration, as that JSON has it.
    bos_token, eos_token: what a template that is given as text may call by name.

    Needs jinja2 (`unbraid[templates]`).
    """
    from .templates.detection import detect as detect_template

    return detect_template(template, bos_token=bos_token, eos_token=eos_token)


def guess(texts: str | Iterable[str]) -> list[Guess]:
    """The formats that explain raw outputs, the best first: each with what it leaves unexplained, how sure that is, and
    which others read the same. Empty for plain text, which says nothing about a format.

    texts: what the model wrote; several outputs tell more than one.
    """
    from .guessing import guess as read_with_all

    return read_with_all(texts)


def render(format: str | Format, message: Message, *, tools: Iterable[Mapping[str, Any]] | None = None) -> str:
    """The raw text that a model of this format would write for `message`. An argument that would not read back is
    refused. With the request's `tools`, so is one that only their schemas would cut off."""
    from .core.render import render as write
    from .core.tools import Tools
    from .formats import resolve

    return write(resolve(format), message, None if tools is None else Tools(tools))


def renderer(
    template: str | Path | ChatTemplate | Mapping[str, ChatTemplate] | object,
    tokenizer: object | None = None,
    format: str | Format | None = None,
    *,
    stop: Iterable[str] = (),
    part_hook: PartHook | None = None,
    **variables: Any,
) -> Renderer:
    """Messages to token ids and back, exactly, for those who train on what a model wrote.

    template: a model's folder, a template's text or file, a `ChatTemplate`, `chatml`, ORG/REPO on the Hugging Face hub,
        or a tokenizer of `transformers` that is loaded: it has its template.
    tokenizer: as in `parser`. Without one, that of the model's folder.
    format: what the model writes; without it, what `detect` finds. Raises `UnknownFormat` if that is not verified.
    stop: further tokens that end a turn, beside those of the format and of the template.
    part_hook: writes parts of a content that are no text, such as images: it takes the part and its place, and returns
        the placeholder's text. Tokens in it are meant as tokens.
    variables: of the template, for every rendering.

    Needs jinja2 (`unbraid[templates]`).
    """
    from .rollouts import renderer as make

    return make(template, tokenizer, format, stop=stop, part_hook=part_hook, **variables)


def export(format: str | Format) -> dict[str, Any]:
    """A format as a JSON document, which `load` reads: for a model's repository, or for another implementation.
    `unbraid export --schema` prints the JSON Schema of such documents."""
    from .formats import resolve
    from .formats.documents import export as write

    return write(resolve(format))


def load(document: str | bytes | Mapping[str, Any]) -> Format:
    """The format that a JSON document of `export` describes, checked as `register` checks one. Use it as it is, or
    `register` it. Raises `InvalidFormat` with the place of what is wrong, or the text that shows it."""
    from .format_checks import check
    from .formats.documents import read

    format = read(document)
    check(format)
    return format


def register(format: Format, *aliases: str) -> Format:
    """Make a format of your own known by its name, and by others. It is checked first, as the laws check the built-in
    ones: what it renders must parse back however it is cut, and what its constraint allows must parse as it is meant.
    Raises `InvalidFormat` with the text that shows what is wrong.
    """
    from .format_checks import check
    from .formats import add

    check(format)
    return add(format, *aliases)


__all__ = [
    "Constraint",
    "Content",
    "CustomInput",
    "CustomTool",
    "Diagnostic",
    "Event",
    "Format",
    "Guess",
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
    "Renderer",
    "SchemaWarning",
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
    "export",
    "find",
    "forced_prefix",
    "guess",
    "load",
    "parse",
    "parser",
    "register",
    "render",
    "renderer",
]
