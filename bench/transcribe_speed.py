"""How fast the systems are: the first requests of a process, and seconds of audio in a second."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from peers import PeerMissing
from transcribe_systems import Answer, System, Worker

from tests.speech.word_errors import error_rate
from tests.support.real_speech import Recording

REQUESTS = 10


@dataclass
class Fresh:
    """Processes of one system that have just been started: the seconds until they were ready, and of each request."""

    name: str
    ready: list[float] = field(default_factory=list)
    requests: list[list[float]] = field(default_factory=list)

    def request(self, number: int) -> float:
        return median(times[number - 1] for times in self.requests)

    def against_last(self, number: int) -> float:
        return median(times[number - 1] / times[-1] for times in self.requests)


def fresh(systems: Iterable[System], recording: Recording, processes: int, threads: int) -> list[Fresh]:
    """The systems take turns, and each turn is a new process."""
    found = {system: Fresh(system.name) for system in systems}
    for _ in range(processes):
        for system in list(found):
            try:
                with Worker.started(system, threads) as (worker, ready):
                    times = [worker.hear(recording).seconds for _ in range(REQUESTS)]
            except PeerMissing as missing:
                _without(system, missing)
                del found[system]
                continue
            found[system].ready.append(ready)
            found[system].requests.append(times)
    return list(found.values())


@dataclass(frozen=True)
class Task:
    """What all systems are given."""

    name: str
    recordings: Sequence[Recording]
    rounds: int
    told: bool = True
    """Whether they are told the language."""
    times: bool = False
    """Whether they write times."""

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.recordings)


@dataclass
class Speed:
    """One system at one task: what each round took, and what was heard."""

    name: str
    audio: float
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    errors: float = 0.0
    """Words that were heard wrong, as a share of those that were said."""
    wrong_languages: int = 0
    memory: int = 0

    @property
    def rate(self) -> float:
        """Seconds of audio in a second, at its best: what disturbs a machine only ever adds."""
        return self.audio / min(self.seconds)

    @property
    def cpu_share(self) -> float:
        """Seconds of the processor's time for a second of audio, at its best."""
        return min(self.cpu) / self.audio

    def times_ours(self, ours: Speed) -> float:
        """How much longer it took than `ours` did in the same round."""
        return median(theirs / mine for theirs, mine in zip(self.seconds, ours.seconds, strict=True))


class Field:
    """All systems at once, each in its process; those that do not work are waiting."""

    def __init__(self, systems: Iterable[System], threads: int) -> None:
        self._stack = ExitStack()
        self._workers: list[Worker] = []
        for system in systems:
            try:
                self._workers.append(self._stack.enter_context(Worker.started(system, threads))[0])
            except PeerMissing as missing:
                _without(system, missing)

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def versions(self) -> dict[str, str]:
        return {name: version for worker in self._workers for name, version in worker.versions.items()}

    def measure(self, task: Task, *, parts: bool) -> list[Speed]:
        """Rounds in which all systems do the task, each round beginning with another one.

        parts: whether systems that only make a difference with long recordings are asked, too.
        """
        workers = [worker for worker in self._workers if parts or not worker.system.for_long]
        found = {worker: Speed(worker.system.name, task.seconds) for worker in workers}
        for number in range(-1, task.rounds):  # before the first round, all that is made once is made
            start = number % len(workers)
            for worker in workers[start:] + workers[:start]:
                if worker not in self._workers:
                    continue
                recordings = task.recordings if number >= 0 else task.recordings[:1]
                try:
                    answers = [worker.hear(one, told=task.told, times=task.times) for one in recordings]
                except PeerMissing as missing:
                    _without(worker.system, missing)
                    self._workers.remove(worker)
                    del found[worker]
                    continue
                if number >= 0:
                    _note(found[worker], task, answers)
        return list(found.values())


def _note(speed: Speed, task: Task, answers: Sequence[Answer]) -> None:
    speed.seconds.append(sum(answer.seconds for answer in answers))
    speed.cpu.append(sum(answer.cpu for answer in answers))
    speed.memory = answers[-1].memory
    pairs = list(zip(task.recordings, answers, strict=True))
    speed.errors = error_rate((one.transcript or "", answer.text) for one, answer in pairs)
    speed.wrong_languages = sum(answer.language != one.language for one, answer in pairs)


def _without(system: System, missing: PeerMissing) -> None:
    print(f"going on without {system.name}: {missing}", file=sys.stderr)
