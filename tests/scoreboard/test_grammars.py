"""The board of constraints: its corpora, its verdicts, and that ours are never silent."""

from __future__ import annotations

import json
from contextlib import ExitStack

import jsonschema
import pytest

from scoreboard.board import FILE
from scoreboard.corpus import SEED
from scoreboard.grammars import CORPORA, OUTCOMES, ROWS, Libraries, judged, outcomes, show
from scoreboard.schemas import Case, drawn, tools

BOARD = json.loads(FILE.read_text(encoding="utf-8"))["constraints"]
CASE = Case("tools", "t:0", "an integer", {"type": "integer", "minimum": 3}, (("", True, 3), ("", False, 2)))


def test_every_row_was_run_or_says_why_not() -> None:
    assert [row["name"] for row in BOARD["rows"]] == [*ROWS]
    for row in BOARD["rows"]:
        for corpus in CORPORA:
            assert row.get("missing") or (sum(row[corpus].values()) > 500 and not row[corpus].keys() - OUTCOMES)
        assert row.get("missing") or row["timed"] == 7  # the document says so


def test_ours_are_never_silent_and_refuse_no_valid_value() -> None:
    ours = [row for row in BOARD["rows"] if row["name"].startswith("unbraid")]
    assert len(ours) == 4
    for row in ours:
        assert row["silent"] == {}
        for corpus in CORPORA:
            assert not row[corpus].keys() & {"valid-said", "valid-silent", "invalid-silent"}


def test_values_of_tools_follow_from_the_seed() -> None:
    cases = tools()
    assert len(cases) > 40
    for case in cases[:9]:
        assert drawn(case.name, case.schema, SEED).values == case.values
        jsonschema.Draft202012Validator.check_schema(case.schema)
    assert all(valid for case in cases for what, valid, _ in case.values if what == "as it is")
    assert not all(valid for case in cases for _, valid, _ in case.values)


def test_what_is_required_may_come_first() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]}
    texts = {text for several in drawn("t:0", schema, 1).texts for text in several}
    assert {'{"a": 1, "b": 2}', '{"b": 2, "a": 1}'} <= texts


def test_what_is_not_right_is_said_or_silent() -> None:
    valid = [True, True, False, False]
    line = {"valid": valid, "taken": [True, False, False, True], "said": ""}
    assert outcomes(line) == ["right", "valid-silent", "right", "invalid-silent"]
    assert outcomes(line | {"said": "a warning"}) == ["right", "valid-said", "right", "invalid-said"]
    assert outcomes({"valid": valid, "error": "no", "said": ""}) == ["refused"] * 4


@pytest.mark.parametrize("name", ["unbraid-lark", "llguidance"])
def test_a_case_is_judged(name: str) -> None:
    pytest.importorskip("llguidance")
    with ExitStack() as stack:
        libraries = Libraries(stack)
        assert judged(libraries, ROWS[name], CASE)["taken"] == [True, False]
        refused = Case("tools", "t:1", "", {"$ref": "#/$defs/nowhere"}, (("", False, 1),))
        assert "nowhere" in judged(libraries, ROWS[name], refused)["error"]


def test_llama_cpps_converter_says_what_it_refuses() -> None:
    pytest.importorskip("xllamacpp")
    with ExitStack() as stack:
        libraries = Libraries(stack)
        answer = libraries.judged(ROWS["llama.cpp"], '{"type": "nothing"}', [])
        assert "nothing" in answer["error"]


def test_a_cell_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llguidance")
    assert show("unbraid-lark:tools:ours:3-now") == 0
    assert "right: {}" in capsys.readouterr().out
    assert show("unbraid-lark:tools:nobody") == 2
    assert show("unbraid-lark:nothing") == 2
