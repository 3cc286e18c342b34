"""The meter: what it counts, what it blames, and that nothing costly escapes it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import unbraid
from unbraid import metering
from unbraid.errors import OverBudget
from unbraid.metering import Cancelled, Meter, costliest, metered, spend, working_on

from .server.planning.jobs import spin_metered
from .support.attacks import ATTACKS, product, tool


def test_without_a_meter_nothing_is_counted() -> None:
    working_on("anything")
    for _ in range(1000):
        spend(1_000_000)
    meter = Meter(1e6)
    with metered(meter):
        spin = meter.place
    assert (spin, costliest(meter._costs)) == ("", "")


def test_a_meter_that_has_run_out_raises_and_names_what_it_was_about() -> None:
    with pytest.raises(OverBudget, match=r"^a\.b takes more than 0 seconds") as raised, metered(Meter(0.0)):
        spin_metered("a.b")
    assert raised.value.field == "a.b"


def test_work_that_is_cancelled_is_given_up() -> None:
    meter = Meter(1e6)
    meter.cancel()
    with pytest.raises(Cancelled), metered(meter):
        spin_metered()


def test_the_part_with_most_of_the_costs_is_blamed() -> None:
    assert costliest(Counter({"x.a[0]": 3, "x.a[1]": 3, "y": 2})) == "x.a"
    assert costliest(Counter({"x.a[0]": 6, "x.a[1]": 1, "y": 2})) == "x.a[0]"
    assert costliest(Counter({"x": 1, "y": 1, "": 8})) == ""
    assert costliest(Counter()) == ""


def test_alternatives_that_multiply_are_blamed_where_they_are_combined() -> None:
    made = unbraid.constraint("hermes", tools=[tool(product(), strict=True)], tool_choice="required")
    with pytest.raises(OverBudget) as raised, metered(Meter(0.2)):
        made.to_gbnf()
    assert raised.value.field == "tool 'f': parameters.properties.x"


def deep(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for level in range(levels):
        inner = {"type": "object", "properties": {f"a{at}": inner for at in range(2)} | {f"b{level}": {"type": "null"}}}
    return inner


HOSTILE: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "products": lambda: [tool(product(6), strict=True)],
    "oneOf": lambda: [tool(product(5, 4, "oneOf"), strict=True)],
    "enum": lambda: [tool({"properties": {"x": {"enum": [f"v{at}" for at in range(5_000)]}}}, strict=True)],
    "names": lambda: [tool({"properties": {f"p{at}": {"type": "integer"} for at in range(900)}}, strict=True)],
    "depth": lambda: [tool(deep(12), strict=True)],
    "patterns": lambda: ATTACKS["patterns"]()[1]["tools"],
    "grammars": lambda: ATTACKS["grammars"]()[1]["tools"],
    "references": lambda: [
        tool(
            {
                "$defs": {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 9} for at in range(60)}
                | {"d60": {"type": "string"}},
                "properties": {"x": {"$ref": "#/$defs/d0"}},
            },
            strict=True,
        )
    ],
}
SYNTAXES = ("gbnf", "ebnf", "structural_tag", "lark", "regex")
MOST_CALLS = 30_000
"""Calls of Python functions between two looks at the meter: some hundredths of a second."""
ENOUGH = 300_000


class Enough(Exception):
    """So many calls show it."""


class Gaps:
    """Counts the calls between two looks at the meter, and remembers the most and where that was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.total = self.longest = 0
        self.where = ""
        monkeypatch.setattr(Meter, "look", self.look)

    def look(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.calls += 1
            self.total += 1
            if self.calls > self.longest:
                self.longest, self.where = self.calls, f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if self.total > ENOUGH:
                raise Enough


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_costly_work_escapes_the_meter(name: str, syntax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in calls, not in seconds: between two looks at the meter there are few."""
    tools = HOSTILE[name]()
    gaps = Gaps(monkeypatch)
    with metered(Meter(1e6)):
        sys.setprofile(gaps)
        try:
            unbraid.constraint("hermes", tools=tools, tool_choice="required").printed(syntax)
        except (Enough, RecursionError, unbraid.UnbraidError):
            pass
        finally:
            sys.setprofile(None)
    assert gaps.longest < MOST_CALLS, gaps.where


def test_metering_has_no_state_that_outlives_it() -> None:
    with metered(Meter(1e6)):
        pass
    assert metering._current.get() is None
