"""Formats as Hugging Face's response_template: transformers' own parser reads the same in what models write; what a
response_template cannot say is refused, and docs/formats.md has the reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import unbraid
from unbraid.cli import main
from unbraid.core.message import Part
from unbraid.format_checks import TOOL_DEFINITIONS, messages_of
from unbraid.templates.detection.response_template_export import ExportedTemplate, response_template

from ...support.places import ROOT

WEATHER, STOP = "get_weather", unbraid.ToolCall("stop", "{}")
ANSWER = unbraid.Text("content", "Let me look.")
CITIES = ("São Paulo", 'the "old" town', "a\nb", "3", "[x]", "中文 \\ {}")


def exported(format: unbraid.Format) -> ExportedTemplate | str:
    """The response_template of a format, or why there is none."""
    try:
        return response_template(format)
    except unbraid.UnbraidError as error:
        return str(error).partition("writes: ")[2]


EXPORTED = {format: exported(format) for format in sorted(unbraid.all_formats(), key=lambda each: each.name)}
WRITTEN = [format for format, each in EXPORTED.items() if isinstance(each, ExportedTemplate)]


def turns(format: unbraid.Format, unread: Sequence[str]) -> Iterator[tuple[Part, ...]]:
    yield from messages_of(format)
    for city in CITIES if format.tools is not None else ():
        call = unbraid.ToolCall(WEATHER, json.dumps({"city": city, "days": -3}, ensure_ascii=False))
        begun: tuple[Part, ...] = () if format.prompt and format.reasoning is not None else (ANSWER,)
        yield (*begun, call)
        if "more than one call" not in unread:
            yield (*begun, call, STOP, call)


def words(texts: Any) -> str:
    """Without whitespace, which transformers strips."""
    return "".join("".join(texts).split())


def said_there(document: dict[str, Any], text: str, prefix: str) -> tuple[Any, ...]:
    parser = pytest.importorskip("transformers.utils.chat_parsing.response_parser")
    message = parser.parse_response(text, document, prefix=prefix, tools=TOOL_DEFINITIONS)
    functions = [call["function"] for call in message.get("tool_calls", [])]
    calls = [(function["name"], function["arguments"]) for function in functions]
    return words(message.get("content") or ""), words(message.get("reasoning_content") or ""), calls


@pytest.mark.parametrize("format", WRITTEN, ids=lambda each: each.name)
def test_transformers_reads_what_models_write(format: unbraid.Format) -> None:
    written = EXPORTED[format]
    assert isinstance(written, ExportedTemplate)
    document = json.loads(json.dumps(written.document))
    compared = 0
    for parts in turns(format, written.unread):
        if "more than one call" in written.unread and sum(isinstance(part, unbraid.ToolCall) for part in parts) > 1:
            continue
        try:
            text = unbraid.render(format, unbraid.Message(parts))
        except unbraid.UnbraidError:
            continue  # this format cannot say it
        texts = [part for part in parts if isinstance(part, unbraid.Text)]
        expected = (
            words(part.text for part in texts if part.strand == "content"),
            words(part.text for part in texts if part.strand == "reasoning"),
            [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, unbraid.ToolCall)],
        )
        end = format.ends[0] if format.ends else ""
        opened = text.startswith(format.prompt)
        prompts = ("", f"<|user|>Hi.{format.prompt}") if opened else ("",)
        for prompt in prompts:
            rest = text.removeprefix(format.prompt) if prompt else text
            assert said_there(document, rest + end, prompt) == expected, (prompt, rest)
            compared += 1
    assert compared > 1


def test_what_cannot_be_said_is_documented() -> None:
    reasons: dict[str, list[str]] = {}
    for format, each in EXPORTED.items():
        if isinstance(each, str):
            reasons.setdefault(each, []).append(f"`{format.name}`")
    rows = [f"| {', '.join(names)} | {reason} |" for reason, names in reasons.items()]
    document = (ROOT / "docs" / "formats.md").read_text()
    missing = [row for row in rows if row not in document]
    assert not missing, "docs/formats.md lacks:\n" + "\n".join(missing)
    assert f"{len(WRITTEN)} of {len(EXPORTED)} formats" in document


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "qwen3", "--response-template"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fields"]["tool_calls"]["content"] == "json"
    assert "not read by it: a call before the reasoning is closed" in printed.err
    assert main(["export", "minicpm-5", "--response-template"]) == 2
    assert "XML with entities" in capsys.readouterr().err
