"""Nothing public breaks unannounced. What is new is recorded at the next release."""

from __future__ import annotations

import pytest

from .public_api import Parameters, announced, breaks, unannounced


def test_no_break_is_unannounced() -> None:
    problems = [f"{name}: {problem}" for name, problem in unannounced().items()]
    assert not problems, "\n".join(["name each under ### Breaking in CHANGELOG.md, or keep it:", *problems])


BOTH, KEYWORD = "positional or keyword", "keyword-only"


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ([["a", BOTH, True], ["b", BOTH, False], ["c", KEYWORD, False]], ""),
        ([["a", BOTH, False], ["b", BOTH, False]], ""),
        ([["a", BOTH, True]], "its parameter 'b' is gone"),
        (
            [["a", BOTH, True], ["b", KEYWORD, False]],
            "its parameter 'b' is keyword-only, and was positional or keyword",
        ),
        ([["a", BOTH, True], ["b", BOTH, True]], "its parameter 'b' must be given now"),
        ([["a", BOTH, True], ["b", BOTH, False], ["c", KEYWORD, True]], "its new parameter 'c' must be given"),
        ([["b", BOTH, False], ["a", BOTH, True]], "its parameters stand in another order"),
        (None, "it takes no parameters any more"),
    ],
)
def test_what_is_a_break(after: Parameters | None, problem: str) -> None:
    before: Parameters = [["a", BOTH, True], ["b", BOTH, False]]
    assert breaks({"f": before}, {"f": after, "new": None}) == ({"f": problem} if problem else {})


def test_what_is_gone_is_a_break_until_it_is_announced() -> None:
    assert breaks({"Parser.feed": None}, {}) == {"Parser.feed": "it is gone"}
    changelog = "## [Unreleased]\n\n### Breaking\n\n- `Parser.feed` is `Parser.read`.\n\n### More\n\n- `find`\n"
    assert announced("Parser.feed", changelog)
    assert not announced("find", changelog)
    assert not announced("Parser.feed", changelog.replace("Unreleased", "0.1.0"))
