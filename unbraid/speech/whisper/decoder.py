"""Whisper's encoder and decoders as ONNX Runtime runs them: which file does what, and what it wants to be fed.

A decoder comes as one file with two branches, as two files, or as graphs that we have made of them. It is the same to
the caller: what to feed is read off the inputs that a graph has.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.base import EngineDown, EngineFailed, Unsupported
from .files import WhisperFiles
from .graphs import cross_graph, prompt_graph, step_graph

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]
Values = dict[str, Any]
"""`OrtValue`s by the names of the inputs that they are for. They lie in ONNX Runtime's memory, or in numpy's: neither
copies what is the other's."""

_HIDDEN = "encoder_hidden_states"
_ATTENTION = "cross_attentions."
_PAST, _PRESENT = "past_key_values.", "present."
_OWN, _CROSS = ".decoder.", ".encoder."
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_WARNINGS = 3  # ONNX Runtime's level for errors and nothing below


class Runtime:
    """ONNX Runtime, with the settings of one model."""

    def __init__(self, threads: int | None) -> None:
        try:
            self._library: Any = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise EngineDown("Whisper takes a library to run on: pip install onnxruntime") from error
        self._threads = threads or 0

    def session(self, source: Path | bytes, *, arena: bool = True) -> Session:
        """A graph, ready to run.

        arena: whether memory is kept from one run to the next. An encoder would keep hundreds of megabytes, and is
            hardly faster for it; so it gives them back after each run. To have no arena at all would cost the first
            run more: it would take four times as much new memory as the later ones.
        """
        options = self._library.SessionOptions()
        # Threads that have nothing to do would wait busily: a third more of the processor's time, and no faster.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = self._threads
        options.log_severity_level = _WARNINGS
        given = str(source) if isinstance(source, Path) else source
        try:
            loaded = self._library.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no base of their own
            name = source.name if isinstance(source, Path) else "a graph made of it"
            raise EngineDown(f"ONNX Runtime cannot load {name}: {error}") from error
        # It keeps a graph that is given as bytes, to load it anew on other providers: as much memory as the weights.
        loaded._model_bytes = None
        if arena:
            return Session(loaded)
        giving_back = self._library.RunOptions()
        giving_back.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return Session(loaded, giving_back)

    def value(self, array: NDArray[Any]) -> Any:
        """An `OrtValue` over the memory of `array`."""
        return self._library.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))

    def rows(self, values: Values, rows: Sequence[int], total: int) -> Values:
        """Some rows of values that have `total` of them. Nothing is copied where that is all of them, or the first."""
        if list(rows) == list(range(total)):
            return values
        first = list(rows) == list(range(len(rows)))
        taken = {}
        for name, value in values.items():
            array = value.numpy()
            taken[name] = self.value(array[: len(rows)] if first else array[list(rows)])
            if first:  # the array does not keep memory that is numpy's own: only the value whose it was does
                taken[name].source = value
        return taken


class Session:
    """A graph that ONNX Runtime has loaded."""

    def __init__(self, loaded: Any, options: Any = None) -> None:
        self._loaded = loaded
        self._options = options
        self.inputs = {value.name: value.type for value in loaded.get_inputs()}
        self.outputs = tuple(value.name for value in loaded.get_outputs())

    def dtype(self, name: str) -> Any:
        """What an input's numbers are."""
        return _TYPES[self.inputs[name]]

    def run(self, feeds: Values, outputs: Sequence[str]) -> list[Any]:
        """Some of the graph's outputs, as `OrtValue`s."""
        try:
            found: list[Any] = self._loaded.run_with_ort_values(list(outputs), feeds, self._options)
        except Exception as error:
            raise EngineFailed(f"ONNX Runtime failed: {error}") from error
        return found


@dataclass(frozen=True)
class Output:
    """What a decoder says of some tokens."""

    logits: Floats
    """After the last one: (rows, vocabulary)."""
    past: Values
    attentions: list[Floats]
    """Of each layer that was asked for: (rows, heads, tokens, 1500)."""


class Decoder:
    """A decoder, in whichever files it came.

    cross: from the encoder's output to cross-attention's keys and values; None if only the whole decoder tells them.
    first: the decoder without a past, loaded when it is needed.
    step: the decoder with a past.
    """

    def __init__(
        self, runtime: Runtime, files: WhisperFiles, cross: Session | None, first: Callable[[], Session], step: Session
    ) -> None:
        self._runtime = runtime
        self._cross = cross
        self._load_first = first
        self._step = step
        self._heads = int(files.config["decoder_attention_heads"])
        self._width = int(files.config["d_model"])
        self._start = int(files.config.get("decoder_start_token_id", 50258))
        self._empty: dict[int, Values] = {}
        self.rewritten = cross is not None
        self.tells_attention = any(name.startswith(_ATTENTION) for name in step.outputs)

    @cached_property
    def _first(self) -> Session:
        return self._load_first()

    def cross(self, hidden: Floats) -> Values:
        """The keys and values of cross-attention for what the encoder said: (rows, 1500, width)."""
        if self._cross is not None:
            return self._present(self._cross, {_HIDDEN: self._hidden(self._cross, hidden)}, _CROSS)
        # Row by row: in a quantised decoder, rows that are read together have one scale.
        found = []
        for row in range(len(hidden)):
            tokens = np.array([[self._start]])
            feeds = self._feeds(self._first, tokens, None, {}, hidden[row : row + 1])
            found.append(self._present(self._first, feeds, _CROSS))
        if len(found) == 1:
            return found[0]
        names = found[0]
        return {name: self._runtime.value(np.concatenate([row[name].numpy() for row in found])) for name in names}

    def read(
        self, tokens: Tokens, past: Values | None, cross: Values, hidden: Callable[[], Floats], layers: Sequence[int]
    ) -> Output:
        """Read tokens, (rows, tokens): one with a past, any number without one.

        past: what the last output left, or `{}` for the beginning; None to begin with several tokens at once.
        hidden: what the encoder said of these rows; wanted only then.
        layers: those whose cross-attention is to be told.
        """
        session = self._first if past is None else self._step
        feeds = self._feeds(session, tokens, past, cross, hidden() if past is None else None)
        present = [name for name in session.outputs if name.startswith(_PRESENT) and _OWN in name]
        attention = [f"{_ATTENTION}{layer}" for layer in layers]
        logits, *others = session.run(feeds, ["logits", *present, *attention])
        values = {_PAST + name.removeprefix(_PRESENT): value for name, value in zip(present, others, strict=False)}
        return Output(
            np.array(logits.numpy()[:, -1], np.float32),  # a copy: of a prompt, the others are large
            values,
            [np.asarray(value.numpy(), np.float32) for value in others[len(present) :]],
        )

    def _feeds(
        self, session: Session, tokens: Tokens, past: Values | None, cross: Values, hidden: Floats | None
    ) -> Values:
        """What `session` wants, from what is there."""
        feeds = {}
        for name in session.inputs:
            if name == "input_ids":
                feeds[name] = self._runtime.value(tokens)
            elif name == _HIDDEN:
                # With a past nothing reads it, but a merged decoder quantises it first: so one frame will do.
                given = np.zeros((len(tokens), 1, self._width), np.float32) if hidden is None else hidden
                feeds[name] = self._hidden(session, given)
            elif name == "use_cache_branch":
                feeds[name] = self._runtime.value(np.array([past is not None]))
            elif name == "cache_position":
                start = next(iter(past.values())).shape()[2] if past else 0
                feeds[name] = self._runtime.value(np.arange(start, start + tokens.shape[1]))
            elif name.startswith(_PAST):
                known = (past if _OWN in name else cross if past is not None else None) or {}
                feeds[name] = known.get(name) or self._nothing(session, name, len(tokens))
            else:
                raise Unsupported(f"this Whisper's decoder wants {name}, which is not known here")
        return feeds

    def _nothing(self, session: Session, name: str, rows: int) -> Any:
        """Keys or values of no tokens."""
        kept = self._empty.setdefault(rows, {})
        if name not in kept:
            shape = (rows, self._heads, 0, self._width // self._heads)
            kept[name] = self._runtime.value(np.zeros(shape, session.dtype(name)))
        return kept[name]

    def _hidden(self, session: Session, hidden: Floats) -> Any:
        return self._runtime.value(hidden.astype(session.dtype(_HIDDEN), copy=False))

    def _present(self, session: Session, feeds: Values, kind: str) -> Values:
        names = [name for name in session.outputs if name.startswith(_PRESENT) and kind in name]
        found = session.run(feeds, names)
        return {_PAST + name.removeprefix(_PRESENT): value for name, value in zip(names, found, strict=True)}


def load_decoder(runtime: Runtime, files: WhisperFiles, *, rewrite: bool) -> Decoder:
    """The decoder of `files`, from graphs of ours if `rewrite` says so and they can be made."""
    if rewrite:
        with contextlib.suppress(EngineDown):  # before 1.22, ONNX Runtime had no products with 8 bits in blocks
            made = _rewritten(runtime, files)
            if made is not None:
                return made
    session = runtime.session(files.decoder_with_past or files.decoder)
    if files.merged:
        return Decoder(runtime, files, None, lambda: session, session)
    return Decoder(runtime, files, None, lambda: runtime.session(files.decoder), session)


def _rewritten(runtime: Runtime, files: WhisperFiles) -> Decoder | None:
    cross, step = cross_graph(files.decoder), step_graph(files.decoder_with_past or files.decoder)
    if cross is None or step is None:
        return None
    crossing = runtime.session(cross, arena=False)
    if set(crossing.inputs) != {_HIDDEN}:
        return None
    return Decoder(runtime, files, crossing, lambda: _prompt(runtime, files), runtime.session(step))


def _prompt(runtime: Runtime, files: WhisperFiles) -> Session:
    return runtime.session(prompt_graph(files.decoder) or files.decoder)
