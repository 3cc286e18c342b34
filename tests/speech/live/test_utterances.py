"""Where somebody begins and ends to speak, in a stream that is cut anywhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.speech.audio.decode import RATE
from unbraid.speech.live.utterances import (
    Quiet,
    SpokenSound,
    Started,
    Stopped,
    UtteranceDetector,
    UtteranceEvent,
    UtteranceOptions,
)

from .talking import LevelVoice, say, silence

STREAM = np.concatenate([silence(1.0), say(["one", "two"]), silence(0.3), say(["three"]), silence(1.2), say(["four"])])


def told(events: list[UtteranceEvent]) -> list[Any]:
    """The events, with the sound between two others joined."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, SpokenSound) and found and isinstance(found[-1], np.ndarray):
            found[-1] = np.concatenate([found[-1], event.samples])
        else:
            found.append(event.samples if isinstance(event, SpokenSound) else event)
    return [one.tobytes() if isinstance(one, np.ndarray) else one for one in found]


def turns(options: UtteranceOptions | None = None) -> UtteranceDetector:
    return UtteranceDetector(LevelVoice(), options or UtteranceOptions())  # type: ignore[arg-type]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_how_the_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    one, other = turns(), turns()
    places = [0, *sorted(cuts), len(STREAM)]
    parts = [event for a, b in pairwise(places) for event in other.feed(STREAM[a:b])]
    assert told(parts) == told(list(one.feed(STREAM)))


def test_an_utterance_has_what_was_said_and_a_little_before() -> None:
    events = list(turns().feed(STREAM))
    kinds = [type(event) for event in events if not isinstance(event, SpokenSound)]
    assert kinds == [Started, Quiet, Quiet, Stopped, Started]
    started = [event.seconds for event in events if isinstance(event, Started)]
    (stopped,) = [event.seconds for event in events if isinstance(event, Stopped)]
    assert started[0] == pytest.approx(0.7, abs=0.1)
    assert stopped == pytest.approx(1.0 + 0.8 + 0.3 + 0.4 + 0.5, abs=0.1)
    first = [event.samples for event in events[: kinds.index(Stopped) + 3] if isinstance(event, SpokenSound)]
    assert np.concatenate(first).any()


def test_a_click_is_no_utterance() -> None:
    click = np.concatenate([silence(0.5), say(["ten"])[: RATE // 40], silence(1.0)])
    assert not list(turns().feed(click))


def test_minutes_of_silence_hold_nothing() -> None:
    follow = turns()
    minute = silence(60.0)
    for _ in range(10):
        assert not list(follow.feed(minute))
    held = sum(map(len, follow._before)) + len(follow._rest)
    assert held < RATE, "less than a second of ten minutes"


@pytest.mark.parametrize("silence_duration", [0.0, 0.05, 0.2, 2.0])
def test_every_pause_is_told_once_before_the_end(silence_duration: float) -> None:
    stream = np.concatenate([say(["one"]), silence(3.0)])
    kinds = [type(one) for one in turns(UtteranceOptions(silence=silence_duration)).feed(stream)]
    assert [kind for kind in kinds if kind is not SpokenSound] == [Started, Quiet, Stopped]
