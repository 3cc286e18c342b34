"""Who speaks when: windows of speech are given vectors, vectors are grouped, and segments are given speakers.

    voices = Voices(model)
    voices.add(chunk)              # each chunk of the recording
    voices.labelled(transcript)    # its segments have speakers

Groups are merged as long as their vectors are alike on average (average linkage): that is the product of their means,
so the vectors of long recordings need not be kept. A group that is too small to be a speaker goes to the one that it is
most like. Two people who talk at once are one of them. Segments are cut where the speaker changes between two words;
a change shorter than a second is none, because a window is longer than that.
"""

from __future__ import annotations

import itertools
import string
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..audio.chunking import Chunk
from ..audio.decode import RATE, Samples
from ..transcript import Segment, Transcript, Word
from .campplus import WINDOW, VoiceModel

_HOP = 0.75  # seconds between two windows
_SHORT = 0.4  # seconds of speech: less is no voice
_ALIKE = 0.4  # the least similarity of two groups of one speaker
_LEAST = 3  # windows of a speaker
_BLOCK = 800  # windows that are grouped at once
_TURN = 1.0  # seconds of a turn within a segment


@dataclass
class Voices:
    """The voices of one recording. `add` takes long, and may be called in a thread; one call at a time."""

    model: VoiceModel
    _times: list[float] = field(default_factory=list)
    """The middle of each window, in seconds of the recording."""
    _groups: list[_Group] = field(default_factory=list)
    _loose: int = 0
    """The groups at the end that were not compared with each other yet."""

    def add(self, chunk: Chunk) -> None:
        """The next chunk."""
        windows = list(_windows(chunk))
        vectors = self.model.vectors([samples for _, samples in windows])
        for (time, _), vector in zip(windows, vectors, strict=True):
            self._groups.append(_Group(vector.astype(np.float64), 1, [len(self._times)]))
            self._times.append(time)
            self._loose += 1
            if self._loose == _BLOCK:
                self._groups, self._loose = merged(self._groups), 0

    def speakers(self) -> list[tuple[float, int]]:
        """The speaker of each window, by its middle: numbers from 0 on, in the order in which they begin to speak."""
        labels = [0] * len(self._times)
        for number, group in enumerate(_settled(merged(self._groups))):
            for window in group.windows:
                labels[window] = number
        order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        return [(time, order[label]) for time, label in zip(self._times, labels, strict=True)]

    def labelled(self, transcript: Transcript) -> Transcript:
        """The transcript, with the speaker of each segment."""
        speakers = self.speakers()
        segments = [part for segment in transcript.segments for part in _by_speaker(segment, speakers)]
        return replace(transcript, segments=tuple(segments))


@dataclass(slots=True)
class _Group:
    """Windows of one voice."""

    mean: NDArray[np.float64]
    """Of their vectors, which have length one."""
    count: int
    windows: list[int]

    def joined(self, other: _Group) -> _Group:
        count = self.count + other.count
        mean = (self.mean * self.count + other.mean * other.count) / count
        return _Group(mean, count, self.windows + other.windows)


def _windows(chunk: Chunk) -> Iterator[tuple[float, Samples]]:
    """The windows of a chunk in which somebody speaks, and the time of the middle of each. They do not reach over a
    pause: what follows it may be another voice."""
    for begin, end in ((0.0, chunk.seconds),) if chunk.speech is None else chunk.speech:
        end = min(end, chunk.seconds)
        count = max(1, 1 + int((end - begin - WINDOW) / _HOP + 0.5))
        for at in np.linspace(begin, max(begin, end - WINDOW), count):
            until = min(at + WINDOW, end)
            if until - at >= _SHORT:
                yield chunk.time((at + until) / 2), chunk.samples[round(at * RATE) : round(until * RATE)]


def merged(groups: Sequence[_Group]) -> list[_Group]:
    """Groups of which no two are alike: the two that are most alike become one, again and again."""
    left = list(groups)
    if len(left) < 2:
        return left
    means = np.stack([group.mean for group in left])
    alike = means @ means.T
    np.fill_diagonal(alike, -np.inf)
    while True:
        one, other = divmod(int(np.argmax(alike)), len(left))
        if alike[one, other] < _ALIKE:
            return [group for group in left if group.count]
        left[one], left[other] = left[one].joined(left[other]), _Group(means[other], 0, [])
        means[one] = left[one].mean
        alike[other], alike[:, other] = -np.inf, -np.inf
        gone = np.isneginf(alike[one])
        alike[one] = alike[:, one] = np.where(gone, -np.inf, means @ means[one])


def _settled(groups: Sequence[_Group]) -> list[_Group]:
    """The groups, with those that are too small to be a speaker in the one that they are most like."""
    large = [group for group in groups if group.count >= _LEAST] or list(groups[:1])
    for group in groups:
        if not any(group is one for one in large):
            best = max(range(len(large)), key=lambda number: float(large[number].mean @ group.mean))
            large[best] = large[best].joined(group)
    return large


def speaker_name(number: int) -> str:
    """A, B, …, Z, AA, AB, …"""
    letters = string.ascii_uppercase
    return letters[number] if number < 26 else speaker_name(number // 26 - 1) + letters[number % 26]


def _speaker_at(speakers: Sequence[tuple[float, int]], time: float) -> int:
    """The speaker of the window whose middle is nearest."""
    at = bisect_left(speakers, (time, 0))
    near = speakers[max(0, at - 1) : at + 1]
    return min(near, key=lambda one: abs(one[0] - time))[1]


def _by_speaker(segment: Segment, speakers: Sequence[tuple[float, int]]) -> Iterator[Segment]:
    """A segment in parts of one speaker each."""
    if not speakers:
        yield segment
        return
    if not segment.words:
        yield replace(segment, speaker=speaker_name(_speaker_at(speakers, (segment.start + segment.end) / 2)))
        return
    runs = _runs(segment.words, speakers)
    for number, words in runs:
        part = replace(segment, words=tuple(words), speaker=speaker_name(number))
        if len(runs) > 1:
            text = "".join(word.text for word in words)
            part = replace(part, start=words[0].start, end=words[-1].end, text=text, tokens=())
        yield part


def _runs(words: Sequence[Word], speakers: Sequence[tuple[float, int]]) -> list[tuple[int, list[Word]]]:
    """Words that one speaker says in a row. A run that is too short belongs to the one before it, or after it."""
    labels = [_speaker_at(speakers, (word.start + word.end) / 2) for word in words]
    pairs = itertools.groupby(zip(labels, words, strict=True), key=lambda pair: pair[0])
    runs: list[tuple[int, list[Word]]] = []
    short: list[Word] = []
    """Of the first run, where it is too short."""
    for label, group in pairs:
        run = [word for _, word in group]
        if runs and (label == runs[-1][0] or run[-1].end - run[0].start < _TURN):
            runs[-1][1].extend(run)
        elif run[-1].end - run[0].start < _TURN:
            short += run
        else:
            runs.append((label, short + run))
            short = []
    return runs or [(max(set(labels), key=labels.count), list(words))]
