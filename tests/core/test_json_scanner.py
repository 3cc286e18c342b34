"""The JSON scanner, against Python's `json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import Limits
from unbraid.core import diagnostics
from unbraid.core.machine.snapshot import decode, encode
from unbraid.core.notations.json_scanner import JsonScanner

from ..support.strategies import cuts

SPACE = " \t\n\r"
DECODER = json.JSONDecoder()

_text = st.text(max_size=5) | st.sampled_from(
    ['"', "\\", "\n", "\x00", "/", "é", "天", "😀", "\ud83d", "{", "]", "u00"]
)
_plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text
values = st.recursive(
    _plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3), max_leaves=8
)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """A JSON value, written in one of the ways that JSON can be written."""
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", "\t:\r")]))
    indent = draw(st.sampled_from([None, None, 2]))
    return json.dumps(draw(values), ensure_ascii=draw(st.booleans()), separators=separators, indent=indent)


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    """JSON with characters deleted, inserted and swapped: some of it is still JSON."""
    chars = list(draw(json_texts()))
    inserted = st.sampled_from(
        [*"{}[]\",:\\ \n\t\x0b\xa0\x00'0159eE+-.x/", "\\u", "\\u00e", "true", "nul", "NaN", "Inf"]
    )
    for change in draw(st.lists(st.sampled_from(["delete", "insert", "swap"]), min_size=1, max_size=3)):
        at = draw(st.integers(0, len(chars)))
        if change == "insert":
            chars.insert(at, draw(inserted))
        elif change == "delete":
            del chars[at : at + 1]
        elif at + 1 < len(chars):
            chars[at], chars[at + 1] = chars[at + 1], chars[at]
    return "".join(chars)


def pieces_of(text: str) -> st.SearchStrategy[list[str]]:
    return st.just(list(text)) | st.composite(cuts)(text)


def scan(pieces: Iterable[str], limits: Limits | None = None) -> tuple[JsonScanner, int]:
    """Scan a text that comes in pieces. The second value is how far the value went, or where it broke."""
    scanner, total = JsonScanner(limits or Limits()), 0
    for piece in pieces:
        end = scanner.scan(piece, 0)
        total += end
        if scanner.done or scanner.error:
            break
        assert end == len(piece), "text is held back"
    scanner.finish()
    return scanner, total


def both_ways(text: str, limits: Limits | None = None) -> tuple[JsonScanner, int]:
    """Scan a text whole and one character at a time, which must say the same."""
    whole, end = scan([text], limits)
    streamed, streamed_end = scan(text, limits)
    assert (encode(streamed), streamed_end) == (encode(whole), end)
    return whole, end


def is_valid(scanner: JsonScanner) -> bool:
    return scanner.done and not scanner.error and not scanner.flaw


def is_json(text: str) -> bool:
    """What Python's `json` says, without the constants that are not JSON."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(data=st.data())
def test_it_accepts_what_python_accepts(data: st.DataObject) -> None:
    text = data.draw(json_texts() | mutated_texts())
    scanner, end = scan(data.draw(pieces_of(text)))
    assert (is_valid(scanner) and not text[end:].strip(SPACE)) == is_json(text)


@given(data=st.data())
def test_it_ends_where_python_ends(data: st.DataObject) -> None:
    value = data.draw(json_texts())
    # A bare number or word goes on as long as characters of one come.
    after = data.draw(st.sampled_from(["", "}", "]", ",", " x", "\n</tool_call>", "<", '"', "{}", "天"]))
    scanner, end = scan(data.draw(pieces_of(value + after)))
    assert is_valid(scanner)
    assert end == DECODER.raw_decode(value + after)[1] == len(value)


@given(text=json_texts(), before=st.text(max_size=5))
def test_it_can_start_anywhere_in_a_text(text: str, before: str) -> None:
    scanner = JsonScanner(Limits())
    assert scanner.scan(before + text + " ,", len(before)) >= len(before + text)
    assert is_valid(scanner)


@given(data=st.data())
def test_saved_and_loaded_at_every_point(data: st.DataObject) -> None:
    text = data.draw(json_texts() | mutated_texts())
    expected, expected_end = scan(text)
    scanner, total = JsonScanner(Limits()), 0
    for char in text:
        total += scanner.scan(char, 0)
        scanner = decode(json.loads(json.dumps(encode(scanner))), Limits())
        if scanner.done or scanner.error:
            break
    scanner.finish()
    assert (encode(scanner), total) == (encode(expected), expected_end)


@given(text=json_texts() | mutated_texts())
def test_is_object(text: str) -> None:
    scanner, _ = both_ways(text)
    if is_valid(scanner):
        assert scanner.is_object == text.lstrip(SPACE).startswith("{")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("  ", 2),
        ('{"a": 1', 7),
        ('{"a": ', 6),
        ('{"a', 3),
        ("[1, ", 4),
        ('"\\', 2),
        ('"\\u12', 5),
    ],
)
def test_not_finished(text: str, position: int) -> None:
    """Text that ends too early is no error: more could have come."""
    scanner, end = both_ways(text)
    assert not scanner.done
    assert (scanner.error, scanner.flaw, end) == ("", "", position)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("{'a': 1}", 1),
        ("{a: 1}", 1),
        ('{"a": 1,}', 8),
        ('{"a" 1}', 5),
        ('{"a": }', 6),
        ('{"a": 1]', 7),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("[,]", 1),
        ("}", 0),
        ("x", 0),
        ("[True]", 1),
        ("[NaN]", 1),
        ("[-Infinity]", 10),
        ("[truth]", 6),
        ("[01]", 3),
        ("[1.]", 3),
        ("[.5]", 1),
        ("[+1]", 1),
        ("[1e]", 3),
        ("[-]", 2),
        ("[１]", 1),
        ("[\xa01]", 1),
    ],
)
def test_errors(text: str, position: int) -> None:
    scanner, end = both_ways(text)
    assert not scanner.done
    assert (scanner.error, end) == (diagnostics.MALFORMED_JSON, position)
    assert scanner.message
    assert scanner.scan("{}", 0) == 0, "a broken value takes no more"


@pytest.mark.parametrize(
    "text", ['{"a": "x\ny"}', '["\t"]', '"\x00"', '"C:\\Users"', '"\\x41"', '"\\u12"', '"\\u12G4"', '{"\\\'": 1}']
)
def test_flaws(text: str) -> None:
    """Not JSON, but where it ends is clear."""
    scanner, end = both_ways(text + "}")
    assert scanner.done
    assert scanner.flaw
    assert (scanner.error, end) == ("", len(text))


def test_depth_limit() -> None:
    limits = Limits(depth=3)
    assert is_valid(both_ways('[{"a": [1]}, [[]]]', limits)[0])
    scanner, end = both_ways('[{"a": [[1]]}]', limits)
    assert (scanner.error, end, len(scanner.open)) == (diagnostics.TOO_DEEP, 8, 3)


def test_number_limit() -> None:
    limits = Limits(number=5)
    assert is_valid(both_ways("[12345, -1e10, false]", limits)[0])
    assert scan(["[123456]"], limits)[0].error == scan("[123456]", limits)[0].error == diagnostics.TOO_LONG
    assert is_valid(both_ways('["123456"]', limits)[0]), "a string is no number"


@pytest.mark.parametrize("pieces", [["[12", "3456]"], ["[", "123", "45", "6", "]"], list("[123456]")])
def test_a_number_that_is_too_long_breaks_at_one_place(pieces: list[str]) -> None:
    whole = scan(["[123456]"], Limits(number=5))
    split = scan(pieces, Limits(number=5))
    assert split[1] == whole[1]


@given(data=st.data())
def test_memory_is_bounded(data: st.DataObject) -> None:
    """The state holds brackets up to the depth limit and one number up to its limit, whatever comes."""
    limits = Limits(depth=4, number=6)
    bits = st.sampled_from(
        ["[", "{", '{"a":', "]", "}", ",", "123", '"x"', "true", "\\", " " * 50, '"' + "y" * 50 + '"']
    )
    scanner = JsonScanner(limits)
    for piece in data.draw(st.lists(bits, max_size=40)):
        scanner.scan(piece, 0)
        assert len(scanner.open) <= limits.depth
        assert len(json.dumps(encode(scanner))) < 300


def test_a_million_brackets() -> None:
    scanner, end = scan(["[" * 100_000] * 10)
    assert (scanner.error, end, len(scanner.open)) == (diagnostics.TOO_DEEP, Limits().depth, Limits().depth)
