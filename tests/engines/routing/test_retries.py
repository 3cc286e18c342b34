"""The retry budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import UnbraidError
from unbraid.engines.routing.routed import RetryBudget
from unbraid.engines.routing.rules import RetryRules

from ...support.examples import examples
from .scripted import Clock

RULES = RetryRules(share=0.2, minimum=3.0, window=10.0)


def allowed(budget: RetryBudget, most: int = 10_000) -> int:
    return next(count for count in range(most) if not budget.retry())


def test_a_few_and_a_share() -> None:
    budget = RetryBudget(RULES, Clock())
    assert allowed(budget) == 3
    for _ in range(100):
        budget.request()
    assert allowed(budget) == 20


def test_what_is_long_ago_does_not_count() -> None:
    clock = Clock()
    budget = RetryBudget(RULES, clock)
    for _ in range(1000):
        budget.request()
    clock.pass_time(1000.0)
    assert allowed(budget) == 3
    clock.pass_time(1000.0)
    assert allowed(budget) == 3


@examples(10)
@given(st.lists(st.one_of(st.just("request"), st.just("retry"), st.floats(0.0, 100.0))))
def test_never_more_than_the_share_of_all_and_a_few_for_each_window(course: list[str | float]) -> None:
    clock = Clock()
    begun = clock.now
    budget = RetryBudget(RULES, clock)
    requests = retries = 0
    for step in course:
        if isinstance(step, float):
            clock.pass_time(step)
        elif step == "request":
            budget.request()
            requests += 1
        else:
            retries += budget.retry()
        windows = 1.0 + (clock.now - begun) / RULES.window
        assert retries <= RULES.share * requests + RULES.minimum * windows + 1e-6


def test_how_often_is_not_negative() -> None:
    with pytest.raises(UnbraidError, match="give 0 or more"):
        RetryRules(most=-1)
