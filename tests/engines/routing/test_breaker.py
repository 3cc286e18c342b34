"""The breaker: its rules one by one, and its laws over any course of events."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unbraid.engines.routing.replica import Breaker, BreakerState, Try
from unbraid.engines.routing.rules import BreakerRules

from ...support.examples import examples
from .scripted import Clock

RULES = BreakerRules(failures=3, rate=0.5, outcomes=8, shortest=5.0, longest=60.0, jitter=0.2, trial=10.0)


def breaker(clock: Clock, chance: float = 0.0) -> Breaker:
    return Breaker(RULES, clock, lambda: chance, lambda state, reason: None)


def fail(one: Breaker, *, fatal: bool = False) -> None:
    one.fail(one.begin(), "it broke", fatal=fatal)


def succeed(one: Breaker) -> None:
    one.succeed(one.begin())


def test_failures_in_a_row_open_it() -> None:
    one = breaker(Clock())
    for _ in range(3):
        for _ in range(5):
            succeed(one)
        fail(one)
        fail(one)
        assert one.state == "closed"
    fail(one)
    assert one.state == "open"


def test_one_fatal_failure_is_enough() -> None:
    one = breaker(Clock())
    fail(one, fatal=True)
    assert one.state == "open"


def test_a_share_of_failures_opens_it() -> None:
    one = breaker(Clock())
    for _ in range(4):
        succeed(one)
    for _ in range(3):
        fail(one)
        succeed(one)
    assert one.refresh() == "closed", "3 of 8"
    fail(one)
    assert one.refresh() == "open", "4 of 8"


def test_the_time_doubles_up_to_the_longest_and_then_starts_over() -> None:
    clock = Clock()
    one = breaker(clock)
    lengths = []
    for _ in range(6):
        fail(one, fatal=True)
        lengths.append(one.until - clock.now)
        clock.now = one.until
    assert lengths == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    succeed(one)
    assert one.state == "closed"
    clock.pass_time(60.0)
    fail(one, fatal=True)
    assert one.length == 60.0, "it came back only just"
    clock.now = one.until
    succeed(one)
    clock.pass_time(60.1)
    fail(one, fatal=True)
    assert one.length == 5.0


def test_the_jitter_is_drawn() -> None:
    clock = Clock()
    one = breaker(clock, chance=0.5)
    fail(one, fatal=True)
    assert one.until - clock.now == 5.5


def test_one_request_tries_it() -> None:
    clock = Clock()
    one = breaker(clock)
    fail(one, fatal=True)
    clock.pass_time(4.9)
    assert one.refresh() == "open"
    clock.pass_time(0.1)
    assert one.refresh() == "half-open"
    probe = one.begin()
    assert one.probe is probe
    other = one.begin()
    assert one.probe is probe
    one.fail(other, "it broke", fatal=True)
    assert one.refresh() == "half-open", "only the probe decides that it is still broken"
    one.succeed(probe)
    assert one.refresh() == "closed"


def test_a_probe_that_says_nothing_leaves_room_for_another() -> None:
    clock = Clock()
    one = breaker(clock)
    fail(one, fatal=True)
    clock.pass_time(5.0)
    one.pass_over(one.begin())
    assert one.refresh() == "half-open"
    assert one.probe is None


def test_a_probe_that_has_given_output_for_a_while_is_enough() -> None:
    clock = Clock()
    one = breaker(clock)
    fail(one, fatal=True)
    clock.pass_time(5.0)
    probe = one.begin()
    probe.first = clock.now
    clock.pass_time(9.9)
    assert one.refresh() == "half-open"
    clock.pass_time(0.1)
    assert one.refresh() == "closed"
    one.fail(probe, "it broke", fatal=True)
    assert one.state == "open", "what it does then still counts"


def test_what_began_before_it_opened_says_nothing() -> None:
    clock = Clock()
    one = breaker(clock)
    old = [one.begin() for _ in range(3)]
    fail(one, fatal=True)
    until = one.until
    one.fail(old[0], "it broke", fatal=True)
    one.succeed(old[1])
    assert (one.state, one.until) == ("open", until)
    clock.now = until
    succeed(one)
    one.fail(old[2], "it broke", fatal=True)
    assert one.state == "closed"


def test_a_last_resort_that_succeeds_closes_it_and_one_that_fails_changes_nothing() -> None:
    clock = Clock()
    one = breaker(clock)
    fail(one, fatal=True)
    until = one.until
    fail(one, fatal=True)
    assert (one.state, one.until) == ("open", until)
    succeed(one)
    assert one.state == "closed"


class AnyCourse(RuleBasedStateMachine):
    """Requests begin and end in any order and any way, and time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.told: list[BreakerState] = []
        self.random = 0.0
        self.one = Breaker(RULES, self.clock, lambda: self.random, lambda state, _: self.told.append(state))
        self.running: list[Try] = []
        self.opened = 0.0

    @rule()
    def begin(self) -> None:
        self.running.append(self.one.begin())

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(["succeed", "fail", "die", "pass_over", "piece"]))
    def go_on(self, data: st.DataObject, outcome: str) -> None:
        at = data.draw(st.integers(0, len(self.running) - 1))
        chosen = self.running[at]
        if outcome == "piece":
            chosen.first = chosen.first or self.clock.now
            return
        del self.running[at]
        was = self.one.state
        if outcome == "succeed":
            self.one.succeed(chosen)
        elif outcome == "pass_over":
            self.one.pass_over(chosen)
        else:
            self.one.fail(chosen, "it broke", fatal=outcome == "die")
        if self.one.state == "open" and was != "open":
            self.opened = self.clock.now

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0, 100.0]), random=st.floats(0.0, 1.0, exclude_max=True))
    def pass_time(self, seconds: float, random: float) -> None:
        self.clock.pass_time(seconds)
        self.random = random

    @invariant()
    def the_probe_runs_and_only_while_half_open(self) -> None:
        if self.one.refresh() != "half-open":
            assert self.one.probe is None
        if self.one.probe is not None:
            assert self.one.probe in self.running

    @invariant()
    def the_time_is_bounded(self) -> None:
        if self.one.state == "open":
            assert RULES.shortest <= self.one.until - self.opened <= RULES.longest * (1 + RULES.jitter)

    @invariant()
    def it_is_told_of_each_change_once(self) -> None:
        assert all(one != other for one, other in zip(self.told, self.told[1:], strict=False) if one == "closed")

    def teardown(self) -> None:
        """Whatever was, a replica that is well is back in the end: it takes one request, once the time is over."""
        for each in self.running:
            self.one.pass_over(each)
        self.clock.pass_time(RULES.longest * 2)
        if self.one.refresh() != "closed":
            assert self.one.state == "half-open"
            succeed(self.one)
        assert self.one.refresh() == "closed"


TestAnyCourse = AnyCourse.TestCase
TestAnyCourse.settings = examples(10, stateful_step_count=40)
