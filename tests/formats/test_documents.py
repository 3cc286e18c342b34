"""Formats as JSON documents: each reads back as it was, follows the schema, and is refused with a place where it is
wrong. The cases for other implementations say what the parser says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

import unbraid
from unbraid.cli import main
from unbraid.format_cases import cases
from unbraid.formats.documents import export, read, schema

SCHEMA = jsonschema.Draft202012Validator(schema())


def named(format: unbraid.Format) -> str:
    return format.name


FORMATS = sorted(unbraid.all_formats(), key=named)


@pytest.mark.parametrize("format", FORMATS, ids=named)
def test_a_format_reads_back(format: unbraid.Format) -> None:
    document = json.loads(json.dumps(export(format)))
    assert read(document) == format
    assert read(json.dumps(document)) == format
    SCHEMA.validate(document)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, value in (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    ):
        yield from places(value, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[path[0]] = replaced(copied[path[0]], path[1:], value)
    return copied


@pytest.mark.parametrize("format", FORMATS, ids=named)
def test_a_document_that_breaks_the_schema_is_refused(format: unbraid.Format) -> None:
    document = json.loads(json.dumps(export(format)))
    for number, path in enumerate(places(document)):
        changed = replaced(document, path, VALUES[number % len(VALUES)])
        assert is_read(changed) == SCHEMA.is_valid(changed), (path, changed)


VALUES: tuple[Any, ...] = (None, 7.5, [], {}, {"type": "None"}, "x")


def is_read(document: Any) -> bool:
    try:
        read(document)
    except unbraid.InvalidFormat:
        return False
    return True


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "not JSON"),
        ([], "is an object, not a list"),
        ({"name": "mine"}, "unbraid_format is missing"),
        ({"unbraid_format": 2, "name": "mine"}, "unbraid_format is 2: this version of unbraid reads 1"),
        ({"unbraid_format": 1}, "lacks the key 'name'"),
        ({"unbraid_format": 1, "name": "a", "reasoning": {"opn": ""}}, "reasoning has the key 'opn'"),
        ({"unbraid_format": 1, "name": "a", "ends": [1]}, r"ends\[0\] is 1 \(integer\), and must be string"),
        ({"unbraid_format": 1, "name": "a", "tools": {"open": "<a>", "body": {}}}, "body.type is missing"),
    ],
)
def test_errors_say_where(document: Any, problem: str) -> None:
    with pytest.raises(unbraid.InvalidFormat, match=problem):
        unbraid.load(document)


def test_a_loaded_format_is_checked_as_a_registered_one() -> None:
    assert unbraid.load(unbraid.export("qwen3")) == unbraid.find("qwen3")
    broken = {**unbraid.export("qwen3"), "reasoning": {"open": "<think>", "close": "<think>"}}
    with pytest.raises(unbraid.InvalidFormat):
        unbraid.load(broken)


@pytest.mark.parametrize("format", FORMATS, ids=named)
def test_cases_say_what_the_parser_says(format: unbraid.Format) -> None:
    """Read by the document alone, as another implementation would."""
    loaded = read(json.loads(json.dumps(export(format))))
    count = 0
    whole: dict[str, Any] = {}
    for case in map(json.loads, map(json.dumps, cases(format))):
        parser = unbraid.Parser(loaded, tools=case["tools"] or None, seed=0)
        ends = [*case["cuts"], len(case["text"])]
        for begin, end in zip([0, *case["cuts"]], ends, strict=True):
            parser.feed(case["text"][begin:end])
        parser.finish()
        assert parser.message.to_openai() == case["message"] == whole.setdefault(case["text"], case["message"])
        assert case["number"] == count
        count += 1
    assert count > 5


@pytest.mark.parametrize("format", FORMATS, ids=named)
def test_cases_hang_together(format: unbraid.Format) -> None:
    """Read without the parser: the events tile the text, and the message is what they say."""
    for case in map(json.loads, map(json.dumps, cases(format))):
        spans = sorted((each["start"], each["end"]) for each in case["events"] if each["start"] < each["end"])
        assert [begin for begin, _ in spans] == [0, *(end for _, end in spans[:-1])][: len(spans)]
        assert (spans[-1][1] if spans else 0) == len(case["text"])
        texts = {
            kind: "".join(each["text"] for each in case["events"] if each["type"] == kind)
            for kind in ("Content", "Reasoning")
        }
        assert texts["Content"] == (case["message"]["content"] or "")
        assert texts["Reasoning"] == (case["message"]["reasoning_content"] or "")
        calls = [each["function"] for each in case["message"].get("tool_calls", [])]
        assert [each["name"] for each in case["events"] if each["type"] == "ToolCallStart"] == [
            call["name"] for call in calls
        ]
        for index, call in enumerate(calls):
            of_call = [each for each in case["events"] if each.get("index") == index]
            assert "".join(each.get("fragment", "") for each in of_call) == call["arguments"]
        ends = [each["complete"] for each in case["events"] if each["type"] == "ToolCallEnd"]
        assert ends == case["complete"]
        assert [each["kind"] for each in case["events"] if each["type"] == "Diagnostic"] == case["diagnostics"]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "qwen3"]) == 0
    assert unbraid.load(capsys.readouterr().out) == unbraid.find("qwen3")
    assert main(["export", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
    assert main(["export", "qwen3", "--cases"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["format"] == "qwen3"
    assert main(["export"]) == 2
    assert "which format?" in capsys.readouterr().err
