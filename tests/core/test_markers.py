"""Looking for markers, against the plainest way to do it."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import unbraid
from unbraid import Format, InvalidFormat
from unbraid.core.grammar import Between
from unbraid.core.machine.markers import Marker, Markers, split_whitespace

from ..support.strategies import cuts

# Few letters, so that markers begin inside each other all the time.
KEYS = st.text("ab<", min_size=1, max_size=4)
TEXTS = st.text("ab< \n", max_size=30)


def apart(keys: list[str]) -> bool:
    """Whether no key stands inside another."""
    return not any(one in other for one, other in permutations(keys, 2))


@st.composite
def marker_sets(draw: st.DrawFn) -> list[Marker]:
    keys = draw(st.lists(KEYS, max_size=4, unique=True).filter(apart))
    return [Marker("open", key, key, lead=draw(st.sampled_from(["", "\n", " ", "\n\n", " \n"]))) for key in keys]


def spellings(markers: list[Marker]) -> list[str]:
    """Every marker, with as much of the whitespace before it as may be there."""
    return [marker.lead[n:] + marker.key for marker in markers for n in range(len(marker.lead) + 1)]


def naive_find(markers: list[Marker], text: str, start: int) -> tuple[int, int] | None:
    for at in range(start, len(text)):
        found = [spelling for spelling in spellings(markers) if text.startswith(spelling, at)]
        if found:
            return at, at + max(map(len, found))
    return None


def naive_safe_end(markers: list[Marker], text: str, start: int) -> int:
    """Where the longest end of the text begins that begins a marker."""
    for at in range(start, len(text)):
        if any(spelling.startswith(text[at:]) for spelling in spellings(markers)):
            return at
    return len(text)


@given(markers=marker_sets(), text=TEXTS, start=st.integers(0, 10))
def test_find(markers: list[Marker], text: str, start: int) -> None:
    start = min(start, len(text))
    looked = Markers(markers)
    found = looked.find(text, start)
    assert (None if found is None else found.span()) == naive_find(markers, text, start)
    if found is not None:
        assert looked.which(found).key == found.group().lstrip()
        assert looked.which(found) in markers


@given(markers=marker_sets(), text=TEXTS, start=st.integers(0, 10))
def test_safe_end(markers: list[Marker], text: str, start: int) -> None:
    found = Markers(markers).find(text, 0)
    text = text if found is None else text[: found.end() - 1]
    start = min(start, len(text))
    assert Markers(markers).safe_end(text, start) == naive_safe_end(markers, text, start)


@given(markers=marker_sets(), text=TEXTS, rest=TEXTS)
def test_what_is_safe_end_is_no_marker_whatever_comes(markers: list[Marker], text: str, rest: str) -> None:
    looked = Markers(markers)
    assume(looked.find(text, 0) is None)
    found = looked.find(text + rest, 0)
    assert found is None or found.start() >= looked.safe_end(text, 0)


@given(markers=marker_sets(), data=st.data())
def test_in_pieces_the_same_markers_are_found(markers: list[Marker], data: st.DataObject) -> None:
    """The way the parser looks: what is safe_end goes, the rest waits for more."""
    text, looked = data.draw(TEXTS), Markers(markers)
    found: list[tuple[int, int]] = []
    buffer, dropped = "", 0
    for piece in data.draw(st.just(list(text)) | st.composite(cuts)(text)):
        buffer += piece
        at = 0
        while match := looked.find(buffer, at):
            found.append((dropped + match.start(), dropped + match.end()))
            at = match.end()
        at = looked.safe_end(buffer, at)
        buffer, dropped = buffer[at:], dropped + at
    expected = []
    at = 0
    while span := naive_find(markers, text, at):
        expected.append(span)
        at = span[1]
    assert found == expected


def test_no_markers() -> None:
    assert Markers([]).find("text", 0) is None
    assert Markers([]).safe_end("text", 0) == 4


@given(key=KEYS, rest=KEYS, others=st.lists(KEYS, max_size=2, unique=True))
def test_a_marker_that_begins_another_is_refused(key: str, rest: str, others: list[str]) -> None:
    keys = dict.fromkeys((key, key + rest, *others))
    with pytest.raises(InvalidFormat, match="is part of another"):
        Markers([Marker("open", each, each) for each in keys])


def test_a_marker_inside_another_is_refused() -> None:
    """A stream could not tell them apart: after `abc` it would take `bc`, in the whole text `abcd`."""
    with pytest.raises(InvalidFormat):
        Markers([Marker("open", "reasoning", "abcd"), Marker("open", "calls", "bc")])


def test_one_marker_for_two_things_is_refused() -> None:
    with pytest.raises(InvalidFormat):
        unbraid.parser(
            Format(
                "ambiguous",
                reasoning=Between("<x>", "</x>"),
                speech=unbraid.core.grammar.SpeechMarkup("<x>", "</y>", code="<audio_{}>", codes=5),
            )
        )


@pytest.mark.parametrize(
    ("marker", "split"),
    [
        ("<a>", ("", "<a>", "")),
        ("\n<a>\n\n", ("\n", "<a>", "\n\n")),
        (" < a > ", (" ", "< a >", " ")),
    ],
)
def test_split_whitespace(marker: str, split: tuple[str, str, str]) -> None:
    assert split_whitespace(marker) == split


@pytest.mark.parametrize("marker", ["", " ", "\n\n"])
def test_a_marker_of_whitespace_is_refused(marker: str) -> None:
    with pytest.raises(InvalidFormat, match="whitespace"):
        split_whitespace(marker)


@given(markers=marker_sets(), text=TEXTS)
def test_absent(markers: list[Marker], text: str) -> None:
    nothing = naive_find(markers, text, 0) is None and naive_safe_end(markers, text, 0) == len(text)
    assert Markers(markers).absent(text) == nothing


CLOSERS = ["</think>", "<tts_end>", "</tool_call>"]


@given(data=st.data())
def test_strays(data: st.DataObject) -> None:
    """Closing markers that close nothing in an answer are reported where they end, and kept as text."""
    bits = [*CLOSERS, "</think", "</", "<tts", "_end>", "\n", "x", ">"]
    text = "x" + data.draw(st.lists(st.sampled_from(bits), max_size=10).map("".join)) + "x"
    parser = unbraid.parser("step-audio-2")
    for piece in data.draw(st.just([text]) | st.just(list(text)) | st.composite(cuts)(text)):
        parser.feed(piece)
    parser.finish()
    assert parser.message.content == text
    assert [(d.kind, d.start) for d in parser.message.diagnostics] == [("stray_closer", end) for end in ends(text)]


@given(data=st.data())
def test_strays_before_the_answer(data: st.DataObject) -> None:
    """There they name nothing, and are markup: law 16. What templates write for no reasoning is not even reported."""
    before = data.draw(st.lists(st.sampled_from([*CLOSERS, "\n"]), max_size=6).map("".join))
    parser = unbraid.parser("step-audio-2")
    for piece in data.draw(st.composite(cuts)(before + "x</")):
        parser.feed(piece)
    parser.finish()
    assert parser.message.content.lstrip() == "x</"
    reported = len(ends(before)) - before.lstrip().startswith("</think>")
    assert [d.kind for d in parser.message.diagnostics] == ["stray_closer"] * reported


def ends(text: str) -> list[int]:
    """Where closing markers end."""
    return [end for end in range(len(text) + 1) if text[:end].endswith(tuple(CLOSERS))]
