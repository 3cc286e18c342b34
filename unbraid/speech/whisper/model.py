"""Whisper on ONNX Runtime, one step at a time. The caller chooses the tokens and decides when to stop.

    model = WhisperModel(resolve_whisper("whisper-base"))
    encoded = model.encode(log_mels(recordings, model.bins))
    state = model.begin(encoded, np.full((encoded.rows, 1), tokens.sot))
    while …:
        logits = model.step(state, state.logits.argmax(-1))

Several recordings are decoded as rows of one batch. The key-value cache stays in ONNX Runtime's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...engines.base import PromptTooLong, Unsupported
from ..onnx import Device
from ..onnx.runtime import Floats, Runtime, Tokens, Values
from .decoder import load_decoder
from .features import FRAMES
from .files import WhisperFiles
from .graphs import POSITIONS, float_encoder

_FEATURES = "input_features"
_ONE_BY_ONE = 16  # prompts up to here are read token by token
_LAST = 4  # and so are the last tokens of longer ones
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's mallopt
_LARGE = 2 << 20


@dataclass(frozen=True)
class Encoded:
    """Recordings as the decoder reads them: the keys and values of cross-attention."""

    rows: int
    hidden: Floats = field(repr=False)
    """The encoder's output: (rows, half of the columns, width)."""
    cross: Values = field(repr=False)


@dataclass
class WhisperState:
    """A batch of outputs in progress. `WhisperModel.step` changes it."""

    encoded: Encoded = field(repr=False)
    audio: tuple[int, ...]
    """The recording of each row, as an index into `encoded`."""
    cross: Values = field(repr=False)
    past: Values = field(repr=False)
    length: int
    """How many tokens have been read."""
    logits: Floats = field(repr=False)
    """The logits of the next token: (rows, vocabulary)."""
    attention: Floats | None = field(default=None, repr=False)
    """The cross-attention at the last token, if it was asked for: (rows, heads, half of the columns), for
    `WhisperModel.heads`."""
    before: tuple[Floats, ...] = field(default=(), repr=False)
    """The same at the tokens before it, where the last step read several."""

    @property
    def rows(self) -> int:
        """How many outputs there are."""
        return len(self.audio)


class WhisperModel:
    """A loaded Whisper. Use it from one thread at a time: it has no locks."""

    def __init__(
        self, files: WhisperFiles, *, threads: int | None = None, device: Device = "auto", rewrite: bool = True
    ) -> None:
        """Load a model, in about a second or more. Raises `EngineDown` if that fails.

        threads: how many threads compute; by default, as many as there are cores.
        rewrite: whether to rewrite quantised graphs (see `graphs`). Otherwise they run as they were published.
        """
        self.files = files
        self.bins = files.bins
        """How many mel bands the encoder reads."""
        self.context: int = int(files.config.get("max_target_positions", 448))
        """The most tokens that prompt and output can have together."""
        self.vocabulary_size: int = int(files.config.get("vocab_size", 51865))
        self._runtime = Runtime(threads, device)
        # The decoder first: loading it takes the most memory.
        self._decoder = load_decoder(self._runtime, files, rewrite=rewrite)
        _give_back()
        encoder = (rewrite and float_encoder(files.encoder)) or files.encoder
        self._encoder = self._runtime.session(encoder, arena=False, beside=files.encoder)
        del encoder
        self.rewritten = self._decoder.rewritten
        """Whether the decoder's graphs were rewritten; see `graphs`."""
        _give_back()

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """The heads of cross-attention, as (layer, head), that follow the audio in time. Empty if the files do not
        output attention."""
        if not self._decoder.has_attention:
            return ()
        named = self.files.generation_config.get("alignment_heads")
        if named:
            return tuple((int(layer), int(head)) for layer, head in named)
        layers, heads = int(self.files.config["decoder_layers"]), int(self.files.config["decoder_attention_heads"])
        return tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))

    def encode(self, mels: Floats) -> Encoded:
        """Encode spectrograms: (rows, bins, columns). One by one: a batch takes more memory and no less time."""
        if mels.ndim != 3 or not len(mels):
            raise Unsupported(f"this Whisper takes spectrograms of (rows, {self.bins}, {FRAMES}), not of {mels.shape}")
        return self.encoded([self.hidden(row) for row in mels])

    @property
    def takes_fewer_columns(self) -> bool:
        """Whether a spectrogram may be shorter than thirty seconds. Rewritten encoders take that."""
        return POSITIONS in self._encoder.inputs

    def run_options(self) -> Any:
        """For `hidden`: setting its `terminate` ends that, with `EngineFailed`."""
        return self._runtime.run_options()

    def hidden(self, mel: Floats, options: Any = None) -> Floats:
        """The encoder's output for one spectrogram: (bins, columns). There are 3,000 columns; or fewer, an even number,
        if it `takes_fewer_columns`."""
        columns = mel.shape[-1]
        fits = 0 < columns <= FRAMES and not columns % 2 if self.takes_fewer_columns else columns == FRAMES
        if mel.shape != (self.bins, columns) or not fits:
            raise Unsupported(f"this Whisper takes spectrograms of ({self.bins}, {FRAMES}), not of {mel.shape}")
        features = mel[None].astype(self._encoder.dtype(_FEATURES), copy=False)
        feeds = {_FEATURES: self._runtime.value(features)}
        if self.takes_fewer_columns:
            feeds[POSITIONS] = self._runtime.value(np.array([columns // 2]))
        hidden: Floats = self._encoder.run(feeds, ["last_hidden_state"], options)[0].numpy()
        return hidden

    def encoded(self, outputs: Sequence[Floats]) -> Encoded:
        """The outputs of the encoder as rows of one batch."""
        hidden = outputs[0] if len(outputs) == 1 else np.concatenate(outputs)
        return Encoded(len(outputs), hidden, self._decoder.cross(hidden))

    def part(self, encoded: Encoded, row: int, first: int, last: int, after: Encoded) -> Encoded:
        """Some positions of a recording, and after them those of another one: as if that were all of the sound."""

        def joined(of: Floats, rest: Floats, axis: int) -> Floats:
            inside = of[row : row + 1].take(range(first, min(last, of.shape[axis])), axis)
            return np.concatenate([inside, rest], axis)

        names = encoded.cross
        cross = {name: joined(names[name].numpy(), after.cross[name].numpy(), 2) for name in names}
        values = {name: self._runtime.value(array) for name, array in cross.items()}
        return Encoded(1, joined(encoded.hidden, after.hidden, 1), values)

    def begin(
        self, encoded: Encoded, prompts: Tokens, *, audio: Sequence[int] | None = None, attentions: bool = False
    ) -> WhisperState:
        """Start outputs with prompts of one length: (rows, tokens).

        The graph of the steps reads it, at once if it can. If not, a short prompt is read token by token, which is more
        exact with quantised files, and a long one by the graph without a past.

        audio: the recording of each row, if the rows are not the recordings in order; several rows may share one.
        attentions: whether to fill `WhisperState.attention`, now and after each step.
        """
        chosen = tuple(range(encoded.rows)) if audio is None else tuple(audio)
        if prompts.ndim != 2 or prompts.shape[0] != len(chosen) or not prompts.size:
            raise Unsupported(f"{len(chosen)} rows need prompts of ({len(chosen)}, tokens), not of {prompts.shape}")
        self._check(prompts, 0)
        if any(not 0 <= row < encoded.rows for row in chosen):
            raise Unsupported(f"there are {encoded.rows} recordings, not those of {chosen}")
        state = WhisperState(
            encoded,
            chosen,
            self._cross(encoded, chosen),
            {},
            0,
            np.empty((len(chosen), 0), np.float32),
        )
        first = prompts.shape[1] - _LAST if prompts.shape[1] > _ONE_BY_ONE and not self.reads_runs else 0
        if first:
            self._read(state, prompts[:, :first], None)
        if attentions and self.heads:
            state.attention = np.empty((len(chosen), len(self.heads), 0), np.float32)
        self.step(state, prompts[:, first:])
        state.before = ()
        return state

    @property
    def runs(self) -> int:
        """How often the decoder has run."""
        return self._decoder.runs

    @property
    def reads_runs(self) -> bool:
        """Whether a step reads several tokens at once. Published decoders with a past have no causal mask; rewritten
        ones have."""
        return self._decoder.reads_runs

    def step(self, state: WhisperState, tokens: Tokens) -> Floats:
        """Read the next token of each row, or several: (rows,) or (rows, tokens). Returns the logits after the last.

        Several tokens are read at once, if the decoder can (`reads_runs`), or else one by one.
        """
        columns = tokens[:, None] if tokens.ndim == 1 else tokens
        if columns.ndim != 2 or columns.shape[0] != state.rows or not columns.size:
            raise Unsupported(f"{state.rows} rows need tokens of ({state.rows},), not of {tokens.shape}")
        self._check(columns, state.length)
        if self.reads_runs:
            self._read(state, columns, state.past)
            return state.logits
        before: list[Floats] = []
        for at in range(columns.shape[1]):
            self._read(state, columns[:, at : at + 1], state.past)
            before += [] if state.attention is None else [state.attention]
        state.before = tuple(before[:-1])
        return state.logits

    def select(self, state: WhisperState, rows: Sequence[int]) -> WhisperState:
        """A state of some rows, in this order; a row may come several times. The given state stays as it is.

        This is cheap where the recordings stay in their places, as with beams. Else megabytes are copied per recording;
        per row where the decoder does not share them, or where the recordings have not as many rows each.
        """
        chosen = tuple(rows)
        if not chosen or any(not 0 <= row < state.rows for row in chosen):
            raise Unsupported(f"there are {state.rows} rows, not those of {chosen}")
        audio = tuple(state.audio[row] for row in chosen)
        stays = self._recordings(audio) == self._recordings(state.audio)
        places = list(chosen)
        return WhisperState(
            state.encoded,
            audio,
            state.cross if stays else self._cross(state.encoded, audio),
            self._runtime.rows(state.past, chosen, state.rows),
            state.length,
            state.logits[places],
            None if state.attention is None else state.attention[places],
        )

    def _cross(self, encoded: Encoded, audio: tuple[int, ...]) -> Values:
        """The keys and values of recordings, for the decoder."""
        return self._runtime.rows(encoded.cross, self._recordings(audio), encoded.rows)

    def _recordings(self, audio: tuple[int, ...]) -> tuple[int, ...]:
        """The recordings whose keys and values the decoder reads: once each, if it can share them among rows."""
        each = tuple(dict.fromkeys(audio))
        count = len(audio) // len(each)
        even = audio == tuple(one for one in each for _ in range(count))
        return each if even and self._decoder.shares_audio else audio

    def _check(self, tokens: Tokens, length: int) -> None:
        if length + tokens.shape[1] > self.context:
            raise PromptTooLong(
                f"{length + tokens.shape[1]} tokens do not fit this Whisper's context of {self.context} tokens"
            )
        if tokens.min() < 0 or tokens.max() >= self.vocabulary_size:
            raise Unsupported(f"the tokens of this Whisper are 0 … {self.vocabulary_size - 1}")

    def _read(self, state: WhisperState, tokens: Tokens, past: Values | None) -> None:
        layers = [] if state.attention is None else sorted({layer for layer, _ in self.heads})
        output = self._decoder.read(
            tokens.astype(np.int64), past, state.cross, lambda: state.encoded.hidden[list(state.audio)], layers
        )
        state.past = output.past
        state.length += tokens.shape[1]
        state.logits = output.logits
        if state.attention is not None:
            chosen = [output.attentions[layers.index(layer)][:, head] for layer, head in self.heads]
            *before, state.attention = np.moveaxis(np.stack(chosen, axis=1), 2, 0)
            state.before = tuple(before)


def _give_back() -> None:
    """Return freed memory to the system. glibc would keep what loading needed: half as much again as the model. What
    is large is given back when it is freed from now on, unless the environment says otherwise: glibc would raise that
    limit by itself to what was freed last, and keep some 40 MB of spectrograms and the like."""
    with contextlib.suppress(Exception):  # only glibc has this
        library = ctypes.CDLL(None)
        if not {"MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"} & os.environ.keys():
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.malloc_trim(0)
