"""What is kept of a recording: all of its speech, in its place, and little else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unbraid.speech.audio.chunking import Chunk, Run, cut_runs
from unbraid.speech.audio.decode import RATE
from unbraid.speech.audio.vad import FRAME, SpeechSpans
from unbraid.speech.options import VadOptions

from ...support.examples import examples

Array = NDArray[np.float32]


class Told:
    """A detector that takes the loudness of a frame for its probability."""

    def feed(self, samples: Array) -> Array:
        loudest: Array = np.abs(samples).reshape(-1, FRAME).max(axis=1)
        return loudest


def recording(stretches: list[tuple[int, float]], rest: int) -> Array:
    """Frames of some loudness each, and a part of a frame."""
    rng = np.random.default_rng(len(stretches))
    parts = [np.full(frames * FRAME, level, np.float32) for frames, level in stretches]
    samples = np.concatenate([*parts, np.full(rest, 0.9, np.float32)])
    # Samples differ, so that one cannot be taken for another; the loudest of a frame keeps its level.
    shades = rng.uniform(0.5, 1.0, len(samples)).astype(np.float32)
    shades[::FRAME] = 1.0
    return samples * shades


def blocks(samples: Array, sizes: list[int]) -> list[Array]:
    edges = np.cumsum(np.resize(np.array(sizes), len(samples) // max(1, sum(sizes) // len(sizes)) + 2))
    return np.split(samples, [int(edge) for edge in edges if edge < len(samples)])


def kept(samples: Array, sizes: list[int], options: VadOptions) -> tuple[SpeechSpans, list[Run]]:
    speech = SpeechSpans(blocks(samples, sizes), Told(), options)  # type: ignore[arg-type]
    return speech, list(speech)


def joined(runs: list[Run]) -> list[Run]:
    """Runs that follow each other, as one."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].start + len(found[-1].samples) == run.start:
            last = found.pop()
            run = Run(last.start, np.concatenate([last.samples, run.samples]))
        found.append(run)
    return found


LEVELS = st.sampled_from([0.0, 0.1, 0.4, 0.6, 1.0])
STRETCHES = st.lists(st.tuples(st.sampled_from([1, 2, 3, 10, 40, 90]), LEVELS), min_size=1, max_size=12)
SIZES = st.lists(st.integers(1, 3000), min_size=1, max_size=4)
OPTIONS = st.builds(
    VadOptions,
    threshold=st.just(0.5),
    padding=st.sampled_from([0.0, 0.1, 0.4]),
    pause=st.sampled_from([0.0, 0.3, 2.0]),
)


@examples(4)
@given(stretches=STRETCHES, rest=st.integers(0, FRAME - 1), sizes=SIZES, options=OPTIONS)
def test_all_speech_is_kept_in_its_place(
    stretches: list[tuple[int, float]], rest: int, sizes: list[int], options: VadOptions
) -> None:
    samples = recording(stretches, rest)
    speech, runs = kept(samples, sizes, options)
    assert speech.read == len(samples)
    covered = np.zeros(len(samples), np.bool_)
    for run in joined(runs):
        assert np.array_equal(samples[run.start : run.start + len(run.samples)], run.samples)
        assert not covered[run.start : run.start + len(run.samples)].any()
        covered[run.start : run.start + len(run.samples)] = True
    starts = [run.start for run in runs]
    assert starts == sorted(starts)
    loud = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).max(axis=1) >= options.threshold
    edges = np.flatnonzero(np.diff(loud, prepend=False, append=False))
    padding = round(options.padding * RATE / FRAME)
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if end - begin >= 3:
            assert covered[max(0, begin - padding) * FRAME : (end + padding) * FRAME].all()
    # What does not matter: how the recording was read.
    _, others = kept(samples, [len(samples)], options)
    assert [(run.start, run.samples.tolist()) for run in joined(runs)] == [
        (run.start, run.samples.tolist()) for run in joined(others)
    ]


@examples(4)
@given(stretches=STRETCHES, sizes=SIZES, longest=st.sampled_from([1.0, 2.5, 30.0]))
def test_chunks_know_where_their_sound_is_from(
    stretches: list[tuple[int, float]], sizes: list[int], longest: float
) -> None:
    samples = recording(stretches, 0)
    speech = SpeechSpans(blocks(samples, sizes), Told(), VadOptions(padding=0.1, pause=0.3))  # type: ignore[arg-type]
    for chunk in cut_runs(speech, longest=longest, search=longest / 2, spans=speech.spans):
        assert 0 < chunk.seconds <= longest
        check_times(chunk, samples)
        half = chunk.after(chunk.seconds / 2)
        check_times(half, samples)
        assert np.array_equal(half.samples, chunk.samples[len(chunk.samples) - len(half.samples) :])


def check_times(chunk: Chunk, samples: Array) -> None:
    """Each sample is the one of its time, and spans lie in the chunk."""
    edges = [0.0, *(begin for begin, _ in chunk.joints), chunk.seconds]
    for begin, end in pairwise(edges):
        there = round(chunk.time(begin) * RATE)
        part = chunk.samples[round(begin * RATE) : round(end * RATE)]
        assert np.array_equal(samples[there : there + len(part)], part)
        assert round(chunk.time(end, ends=True) * RATE) == there + len(part)
    assert chunk.speech is not None
    at = 0.0
    for begin, end in chunk.speech:
        assert at <= begin < end <= chunk.seconds + 1e-9
        at = end


def test_a_click_is_no_speech_and_a_long_pause_is_left_out() -> None:
    samples = recording([(40, 0.0), (2, 1.0), (200, 0.0), (30, 1.0), (30, 0.0), (30, 1.0), (300, 0.0), (30, 0.7)], 0)
    _, runs = kept(samples, [10_000], VadOptions())
    found = [(run.start // FRAME, len(run.samples) // FRAME) for run in joined(runs)]
    padding = round(0.4 * RATE / FRAME)
    assert found == [(242 - padding, 90 + 2 * padding), (632 - padding, 30 + padding)]


def test_without_a_detector_all_is_kept() -> None:
    samples = recording([(40, 0.0), (2, 1.0), (200, 0.0)], 5)
    speech = SpeechSpans(blocks(samples, [700]), None, VadOptions())
    assert np.array_equal(np.concatenate([run.samples for run in speech]), samples)
    assert speech.spans(0, len(samples)) is None
    off = SpeechSpans(blocks(samples, [700]), Told(), None)  # type: ignore[arg-type]
    assert np.array_equal(np.concatenate([run.samples for run in off]), samples)
