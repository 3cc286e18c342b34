"""The reference of Python's API: which names stand on which page. mkdocstrings writes them from their docstrings."""

from __future__ import annotations

FOLDER = "reference"
PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "parsing": (
        "Parsing",
        "[The library](../library.md#parsing) shows how these are used.",
        ("unbraid.Parser", "unbraid.parse", "unbraid.parser", "unbraid.Limits"),
    ),
    "events": (
        "Events",
        "What a parser returns, in the order of the text.",
        (
            *("unbraid.Event", "unbraid.Content", "unbraid.Reasoning"),
            *("unbraid.ToolCallStart", "unbraid.ToolCallArguments", "unbraid.ToolCallEnd"),
            *("unbraid.SpeechText", "unbraid.SpeechAudio", "unbraid.Language", "unbraid.Timestamp"),
            *("unbraid.Diagnostic", "unbraid.Markup", "unbraid.diagnostics"),
        ),
    ),
    "messages": (
        "Messages",
        "What a whole response says, and back to raw text.",
        (
            *("unbraid.Message", "unbraid.Part", "unbraid.Text", "unbraid.ToolCall", "unbraid.Speech", "unbraid.Tag"),
            "unbraid.render",
        ),
    ),
    "tools": (
        "Tools",
        "The tools of a request. [Custom tools](../library.md#custom-tools) take free text.",
        ("unbraid.Tools", "unbraid.CustomTool", "unbraid.CustomInput"),
    ),
    "constraints": (
        "Constraints",
        "[Constraining](../library.md#constraining) shows how these are used.",
        (
            *("unbraid.constraint", "unbraid.forced_prefix", "unbraid.Constraint", "unbraid.Unenforced"),
            *("unbraid.NotRegular", "unbraid.NotTokens"),
        ),
    ),
    "formats": (
        "Formats",
        "[Formats](../formats.md) lists them, and shows how to write one.",
        (
            *("unbraid.find", "unbraid.all_formats", "unbraid.compose", "unbraid.register", "unbraid.detect"),
            *("unbraid.guess", "unbraid.Guess"),
            *("unbraid.export", "unbraid.load"),
            *("unbraid.templates.detection.Detection", "unbraid.Format", "unbraid.core.grammar"),
            "unbraid.core.notations",
        ),
    ),
    "rollouts": (
        "Rollouts",
        "[Rollouts](../rollouts.md) shows how these are used.",
        ("unbraid.renderer", "unbraid.Renderer"),
    ),
    "errors": (
        "Errors",
        "All are `UnbraidError`s, with a sentence that says what to change.",
        (
            *("unbraid.UnbraidError", "unbraid.UnknownFormat", "unbraid.InvalidFormat", "unbraid.InvalidTools"),
            *("unbraid.InvalidSchema", "unbraid.InvalidSnapshot", "unbraid.MissingTokens", "unbraid.SchemaWarning"),
        ),
    ),
    "engines": (
        "Engines",
        "What an engine of the server is. [Contributing](../contributing.md#add-an-engine) has the steps to add one.",
        ("unbraid.engines.base",),
    ),
    "plugins": (
        "Plug-ins",
        "For [vLLM](../vllm.md) and [SGLang](../sglang.md).",
        ("unbraid.plugins.sglang.install", "unbraid.plugins.sglang.AudioParserManager"),
    ),
}
"""The title of each page, a sentence, and the names on it."""


def path_of(page: str) -> str:
    return f"{FOLDER}/{page}.md"


def page(name: str) -> str:
    title, about, names = PAGES[name]
    return "\n\n".join([f"# {title}", about, *(f"::: {each}" for each in names)])
