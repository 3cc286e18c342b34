"""Server-sent events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.http.address import EventReader


def read(data: bytes, cuts: list[int] | None = None) -> list[str]:
    reader = EventReader()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    return [event for at, to in pairwise(places) for event in reader.feed(data[at:to])]


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b'data: {"a": 1}\n\ndata: [DONE]\n\n', ['{"a": 1}', "[DONE]"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\ndata\ndata:\n\n", ["a\nb\n\n"]),
        (b": keep-alive\n\ndata: a\n: more\nevent: x\nid: 1\nretry: 5\n\n", ["a"]),
        (b"data:a\n\ndata:  a \n\n", ["a", " a "]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: a\n\ndata: not whole\n", ["a"]),
        (b"datax: a\n\n\n\n", []),
        (b"data: \xff\n\n", ["\ufffd"]),
    ],
)
def test_what_the_standard_says(data: bytes, events: list[str]) -> None:
    assert read(data) == events
    assert read(data, list(range(len(data)))) == events


LINES = st.one_of(
    st.text().map(lambda text: "data: " + text.replace("\r", "").replace("\n", "")),
    st.sampled_from(["", "", "data", "data:", ":", ": ping 🦜", "event: a", "\ufeff", "id", "data: 🦜é中"]),
)


@given(st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"]))), st.lists(st.integers(min_value=0)))
def test_any_cut_gives_the_same_events(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    data = "".join(line + end for line, end in lines).encode()
    assert read(data, cuts) == read(data)


@given(st.lists(st.text(min_size=1), min_size=1), st.lists(st.integers(min_value=0)))
def test_what_was_sent_arrives(texts: list[str], cuts: list[int]) -> None:
    plain = [text.replace("\r", " ") for text in texts]
    data = "".join("".join(f"data: {line}\n" for line in text.split("\n")) + "\n" for text in plain)
    assert read(data.encode(), cuts) == plain
