"""Detecting the language in the request that transcribes, against being given it and against a request of its own."""

from __future__ import annotations

import asyncio
import time
import timeit
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

import numpy as np

from unbraid.speech.audio.chunking import cut
from unbraid.speech.audio.decode import Samples
from unbraid.speech.decoding.sampling import SamplingDecoding
from unbraid.speech.decoding.worker import ListenJob
from unbraid.speech.listening import ListenEnd, ListenRequest
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper.files import WhisperFiles
from unbraid.speech.whisper.listener import WhisperEngine
from unbraid.speech.whisper.rules import WhisperRules

FUSED, FIXED, TWICE = "fused", "fixed", "two passes"
MOST_TRIES = 20  # until the chunks of a round were decoded together


class Speech(Protocol):
    """What is transcribed."""

    @property
    def samples(self) -> Samples: ...

    @property
    def seconds(self) -> float: ...

    @property
    def language(self) -> str: ...


class Engine(WhisperEngine):
    """One that notes how many chunks were decoded together."""

    def __init__(self, files: WhisperFiles, threads: int | None = None, parallel: int = 4) -> None:
        self.batches: list[int] = []
        super().__init__(files, threads=threads, parallel=parallel)

    def _decode(self, jobs: list[ListenJob]) -> Iterator[None]:
        self.batches.append(len(jobs))
        return super()._decode(jobs)


@dataclass(frozen=True)
class Took:
    """What one variant took once."""

    seconds: float
    cpu: float
    """Seconds of the processor's time, of all threads."""
    said: tuple[object, ...]
    """What was written, of each chunk: the same for all variants."""
    batches: tuple[int, ...]


@dataclass
class Case:
    """What is transcribed, and what each round of it took, by the names of the variants."""

    name: str
    run: Callable[[str], Awaitable[tuple[object, ...]]]
    batches: dict[str, tuple[int, ...]] | None = None
    """How many chunks are decoded together by a variant, where that is to be so."""
    rounds: list[dict[str, Took]] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """A variant against `FIXED`."""

    ratio: float
    """The median over all rounds, in each of which both are measured one after the other."""
    low: float
    high: float
    """Between these the true median is in 19 of 20 cases: by the ranks, whatever disturbs the machine."""
    best: float
    """The best time of each, over the rounds; the median over what is transcribed."""
    cpu: float
    """As `ratio`, by the processor's time."""
    milliseconds: float

    @classmethod
    def of(cls, variant: str, cases: Sequence[Case]) -> Compared:
        pairs = [(took[variant], took[FIXED]) for case in cases for took in case.rounds]
        ratios = sorted(one.seconds / fixed.seconds for one, fixed in pairs)
        middle, away = len(ratios) // 2, round(0.98 * len(ratios) ** 0.5 + 0.5)
        best = [_best(case, variant) / _best(case, FIXED) for case in cases]
        return cls(
            median(ratios),
            ratios[max(0, middle - away)],
            ratios[min(len(ratios) - 1, middle + away)],
            median(best),
            median(one.cpu / fixed.cpu for one, fixed in pairs),
            median(_best(case, variant) for case in cases) * 1e3,
        )


def _best(case: Case, variant: str) -> float:
    return min(took[variant].seconds for took in case.rounds)


@dataclass(frozen=True)
class Row:
    """Several cases of one kind."""

    model: str
    name: str
    pairs: int
    fixed: Compared
    fused: Compared
    twice: Compared
    batches: tuple[int, ...]
    """How many chunks were decoded together, in a fused request."""

    @classmethod
    def of(cls, model: str, cases: Sequence[Case]) -> Row:
        fixed, fused, twice = (Compared.of(variant, cases) for variant in (FIXED, FUSED, TWICE))
        count = sum(len(case.rounds) for case in cases)
        return cls(model, cases[0].name, count, fixed, fused, twice, cases[0].rounds[-1][FUSED].batches)


class Bench:
    """One model, asked in three ways."""

    def __init__(self, model: str, engine: Engine) -> None:
        self.model = model
        self.engine = engine
        self._transcriber = Transcriber(self.engine)

    def chunks(self, recordings: Sequence[Speech]) -> Case:
        """Recordings of one chunk each, all at once: requests as the engine gets them."""
        count = len(recordings)
        known = [(one.samples, one.language) for one in recordings]

        async def run(variant: str) -> tuple[object, ...]:
            told: Sequence[str | None]
            if variant == TWICE:
                told = await asyncio.gather(*(self._detect(samples) for samples, _ in known))
            else:
                told = [None if variant == FUSED else language for _, language in known]
            asked = (self._ask(samples, language) for (samples, _), language in zip(known, told, strict=True))
            return tuple(await asyncio.gather(*asked))

        batches = {FUSED: (count,), FIXED: (count,), TWICE: (count, count)}
        name = f"{count} chunk{'s at once' if count > 1 else ''}"
        return Case(name, run, batches)

    def recording(self, whole: Speech) -> Case:
        """A recording of several chunks, by the transcriber. Two passes detect the language by the first of them."""
        samples = whole.samples
        first = next(cut([samples], longest=self._transcriber.adapter.max_seconds)).samples

        async def run(variant: str) -> tuple[object, ...]:
            language = whole.language if variant == FIXED else await self._detect(first) if variant == TWICE else None
            options = TranscriptionOptions(language=language, temperature=0.0, beams=1)
            found = await self._transcriber.transcribe([samples], options)
            return tuple((segment.text, segment.tokens) for segment in found.segments)

        return Case(f"{whole.seconds:.0f} s", run)

    async def _ask(self, samples: Samples, language: str | None) -> tuple[int, ...]:
        """The tokens of a chunk, the language's and the end among them."""
        return await self._listen(self._request(samples, language))

    async def _detect(self, samples: Samples) -> str:
        """The language by a request for one token: as vLLM does it, with an encoder's pass of its own."""
        [token] = await self._listen(replace(self._request(samples, None), max_tokens=1))
        return self.engine.tokens.codes[token]

    def _request(self, samples: Samples, language: str | None) -> ListenRequest:
        return self._transcriber.adapter.request(samples.copy(), TranscriptionOptions(language=language), 0.0)

    async def _listen(self, request: ListenRequest) -> tuple[int, ...]:
        tokens: list[int] = []
        async for output in self.engine.listen(request):
            if not isinstance(output, ListenEnd):
                tokens += output.ids
        return tuple(tokens)

    def added(self) -> float:
        """Seconds that detecting a language takes beside being given it, by its parts: a request with more in it, and
        a token chosen among many. What the model does is the same."""
        return self._parts(None) - self._parts("en")

    def _parts(self, language: str | None) -> float:
        samples = np.zeros(16_000, np.float32)
        rules, rng = WhisperRules(self.engine.tokens), np.random.default_rng(0)
        logits = rng.standard_normal(self.engine.tokens.size, np.float32)

        def once() -> None:
            request = self._request(samples, language)
            SamplingDecoding(rules, request.prefix, False, 0.0, 448, rng).next(logits)

        return min(timeit.repeat(once, number=20, repeat=50)) / 20

    # --- Rounds ----------------------------------------------------------------------------------------------------

    async def measure(self, cases: Sequence[Case], rounds: int) -> None:
        """So many rounds of each case. The variants take turns, and each comes first as often as the others."""
        variants = [FUSED, FIXED, TWICE]
        for case in cases:
            for variant in variants:  # all that is made once is made
                await self._take(case, variant)
        for number in range(rounds):
            turn = variants[number % 3 :] + variants[: number % 3]
            for case in cases:
                took = {variant: await self._take(case, variant) for variant in turn}
                if len({one.said for one in took.values()}) > 1:
                    raise SystemExit(f"{self.model}, {case.name}: the outputs differ, so their times say nothing")
                case.rounds.append(took)

    async def _take(self, case: Case, variant: str) -> Took:
        for _ in range(MOST_TRIES):
            self.engine.batches.clear()
            start, used = time.perf_counter(), time.process_time()
            said = await case.run(variant)
            took = Took(time.perf_counter() - start, time.process_time() - used, said, tuple(self.engine.batches))
            if case.batches is None or took.batches == case.batches[variant]:
                return took
        raise SystemExit(f"{self.model}, {case.name}: chunks that are asked for at once are not decoded together")
