"""Arrow tables: each row says what `parse` says of its output, and nothing of the table is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import UnbraidError
from unbraid.datasets.rows import COLUMNS, Parsing

from ..support.byte_vocabulary import ByteVocabulary
from ..support.examples import examples

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'unbraid[datasets]'")

CALL = '<tool_call>\n{"name": "search", "arguments": {"q": "tea"}}\n</tool_call>'
PIECES = [
    "<think>\n",
    "Hm. ",
    "\n</think>\n\n",
    "Málaga ",
    CALL,
    CALL[:30],
    "</tool_call>",
    "\\ud800",
    "<|im_end|>",
    "\x00",
]


def parse_table(table: Any, parsing: Parsing) -> Any:
    from unbraid.datasets.parquet import parse_table

    return parse_table(table, parsing, 0)


@examples(4)
@given(st.lists(st.none() | st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=8))
def test_each_row_says_what_its_output_says(outputs: list[str | None]) -> None:
    table = pa.table({"n": list(range(len(outputs))), "output": pa.array(outputs, pa.string())})
    parsed = parse_table(table, Parsing("qwen3", "output"))
    assert parsed.select(["n", "output"]) == table
    for row, output in zip(parsed.to_pylist(), outputs, strict=True):
        if output is None:
            assert all(row[name] is None for name in COLUMNS)
            continue
        message = unbraid.parse("qwen3", output)
        assert (row["content"], row["reasoning"]) == (message.content, message.reasoning)
        calls = [(call.name, call.arguments, call.complete, call.raw) for call in message.tool_calls]
        assert [(call["name"], call["arguments"], call["complete"], call["raw"]) for call in row["tool_calls"]] == calls
        told = [(one.kind, one.message, one.start, one.end) for one in message.diagnostics]
        assert [tuple(one.values()) for one in row["diagnostics"]] == told


def test_speech_has_its_text_and_its_codes() -> None:
    table = pa.table({"output": ["<tts_start>Hi<audio_7><audio_8> you<tts_end>"]})
    [row] = parse_table(table, Parsing("step-audio-2", "output")).to_pylist()
    assert row["speech"] == [{"text": "Hi you", "codes": [7, 8], "section": 0}]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_of_any_type(kind: Any) -> None:
    table = pa.table({"output": pa.array(["One."], pa.string()).cast(kind)})
    assert parse_table(table, Parsing("qwen3", "output")).to_pylist()[0]["content"] == "One."


def test_token_ids() -> None:
    vocabulary = ByteVocabulary()
    table = pa.table({"ids": [list(CALL.encode())]})
    [row] = parse_table(table, Parsing("qwen3", "ids", tokenizer=vocabulary)).to_pylist()
    assert [call["name"] for call in row["tool_calls"]] == ["search"]
    with pytest.raises(UnbraidError, match="give the tokenizer"):
        parse_table(table, Parsing("qwen3", "ids"))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"text": ["a"]}, {}, "no column 'output': there are 'text'"),
        ({"output": ["a"], "content": ["b"]}, {}, "has a column 'content' already"),
        ({"output": [1.5]}, {}, "holds double"),
        ({"output": ["a"]}, {"format": "qwen33"}, "qwen33"),
    ],
    ids=["missing", "taken", "numbers", "format"],
)
def test_what_cannot_be_parsed_is_told(columns: dict[str, Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises(UnbraidError, match=said):
        parse_table(pa.table(columns), Parsing(**{"format": "qwen3", "column": "output", **options}))


def test_a_prefix_makes_room() -> None:
    table = pa.table({"output": ["One."], "content": ["mine"]})
    [row] = parse_table(table, Parsing("qwen3", "output", "parsed_")).to_pylist()
    assert (row["content"], row["parsed_content"]) == ("mine", "One.")
