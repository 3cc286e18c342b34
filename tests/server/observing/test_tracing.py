"""`traceparent` and `tracestate`, by the rules of W3C's Trace Context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.observing.tracing import trace_context, trace_id

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_what_is_well_formed_is_passed_on_as_it_came() -> None:
    found = trace_context([PARENT], ["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE, t@x=1"])
    assert found == {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,t@x=1"}
    assert trace_id(found) == TRACE


@pytest.mark.parametrize("parent", [PARENT, f" {PARENT}\t", f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-next"])
def test_well_formed(parent: str) -> None:
    assert trace_context([parent], []) == {"traceparent": parent.strip()}


@pytest.mark.parametrize(
    "parents",
    [
        [],
        [""],
        ["garbage"],
        [PARENT, PARENT],
        [f"ff-{TRACE}-{SPAN}-01"],
        [f"0-{TRACE}-{SPAN}-01"],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE.upper()}-{SPAN}-01"],
        [f"00-{TRACE}-{SPAN}-0g"],
        [f"00-{TRACE}-{SPAN}"],
        [f"{PARENT}-more"],
        [f"cc-{TRACE}-{SPAN}-01.more"],
        [f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}"],
    ],
)
def test_a_malformed_parent_is_none_and_takes_the_state_with_it(parents: list[str]) -> None:
    assert trace_context(parents, ["a=1"]) == {}
    assert trace_id({}) is None


@pytest.mark.parametrize(
    "states",
    [
        ["a"],
        ["a="],
        ["=1"],
        ["A=1"],
        ["a=1,a=2"],
        ["a=1", "a=2"],
        ["a=b=c"],
        ["a@@b=1"],
        ["a=\x07"],
        ["a=é"],
        [",".join(f"k{number}=1" for number in range(33))],
        [f"{'k' * 257}=1"],
        [f"k={'v' * 257}"],
    ],
)
def test_a_malformed_state_is_dropped_alone(states: list[str]) -> None:
    assert trace_context([PARENT], states) == {"traceparent": PARENT}


def test_a_state_that_is_too_long_loses_long_members_first_and_then_the_last() -> None:
    long, short = f"long={'x' * 200}", [f"k{number}={'v' * 50}" for number in range(12)]
    found = trace_context([PARENT], [",".join([long, *short])])["tracestate"]
    assert len(found) <= 512
    assert found == ",".join(short[: len(found.split(","))])


@given(st.lists(st.text(), max_size=2), st.lists(st.text(), max_size=3))
def test_nothing_else_is_ever_passed_on(parents: list[str], states: list[str]) -> None:
    for value in trace_context([PARENT, *parents][-1:], states).values():
        assert value.isascii()
        assert value.isprintable()
