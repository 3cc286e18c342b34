"""Whisper's decoder on ONNX Runtime: which file does what, and what it must be fed.

A decoder comes as one merged file with two branches, as two files, or as graphs that `graphs` made of them. `Decoder`
hides which: it reads off a graph's inputs what to feed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...engines.base import EngineDown, Unsupported
from ..onnx.runtime import Floats, OnnxSession, Runtime, Tokens, Values
from .files import WhisperFiles
from .graphs import CAUSAL_MASK, SHARED_AUDIO, cross_graph, prompt_graph, step_graph

_log = logging.getLogger(__name__)

_HIDDEN = "encoder_hidden_states"
_ATTENTION = "cross_attentions."
_PAST, _PRESENT = "past_key_values.", "present."
_OWN, _CROSS = ".decoder.", ".encoder."
_HIDDEN_SCORE = -1e9  # a softmax makes nothing of it


@dataclass(frozen=True)
class DecoderOutput:
    """The result of reading some tokens."""

    logits: Floats
    """After the last token: (rows, vocabulary)."""
    past: Values
    attentions: list[Floats]
    """The cross-attention of each layer that was asked for: (rows, heads, tokens, positions)."""


class Decoder:
    """A decoder, in whichever files it came.

    cross: computes the keys and values of cross-attention from the encoder's output. None if there is no such graph;
        then the whole decoder computes them.
    first: loads the decoder without a past, when it is first needed.
    step: the decoder with a past.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: WhisperFiles,
        cross: OnnxSession | None,
        first: Callable[[], OnnxSession],
        step: OnnxSession,
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
        self.has_attention = any(name.startswith(_ATTENTION) for name in step.outputs)
        self.reads_runs = CAUSAL_MASK in step.inputs
        """Whether several tokens can be read with a past."""
        self.shares_audio = SHARED_AUDIO in step.inputs
        """Whether the keys and values of a recording may serve several rows, which lie side by side."""
        self.runs = 0
        """How often the decoder has run."""

    @cached_property
    def _first(self) -> OnnxSession:
        return self._load_first()

    def cross(self, hidden: Floats) -> Values:
        """The keys and values of cross-attention, for the encoder's output: (rows, positions, width)."""
        if self._cross is not None:
            return self._present(self._cross, {_HIDDEN: self._hidden(self._cross, hidden)}, _CROSS)
        # Row by row: a quantised decoder has one scale for all rows of a batch.
        outputs = []
        for row in range(len(hidden)):
            tokens = np.array([[self._start]])
            feeds = self._feeds(self._first, tokens, None, {}, hidden[row : row + 1])
            outputs.append(self._present(self._first, feeds, _CROSS))
        if len(outputs) == 1:
            return outputs[0]
        names = outputs[0]
        return {name: self._runtime.value(np.concatenate([row[name].numpy() for row in outputs])) for name in names}

    def read(
        self, tokens: Tokens, past: Values | None, cross: Values, hidden: Callable[[], Floats], layers: Sequence[int]
    ) -> DecoderOutput:
        """Read tokens, (rows, tokens): any number without a past, and with one if it `reads_runs`; else one per row.

        past: the keys and values of the tokens so far, `{}` at the start; None to start with several tokens at once.
        cross: with a row for each row, or if it `shares_audio` for each recording, if all have as many rows.
        hidden: gives the encoder's output for these rows; called only where `past` is None.
        layers: those whose cross-attention is wanted.
        """
        session = self._first if past is None else self._step
        feeds = self._feeds(session, tokens, past, cross, hidden() if past is None else None)
        present = [name for name in session.outputs if name.startswith(_PRESENT) and _OWN in name]
        attention = [f"{_ATTENTION}{layer}" for layer in layers]
        self.runs += 1
        logits, *others = session.run(feeds, ["logits", *present, *attention])
        values = {_PAST + name.removeprefix(_PRESENT): value for name, value in zip(present, others, strict=False)}
        return DecoderOutput(
            np.array(logits.numpy()[:, -1], np.float32),  # a copy: a view would keep the logits of a whole prompt
            values,
            [_by_rows(np.asarray(value.numpy(), np.float32), len(tokens)) for value in others[len(present) :]],
        )

    def _feeds(
        self, session: OnnxSession, tokens: Tokens, past: Values | None, cross: Values, hidden: Floats | None
    ) -> Values:
        """The inputs of `session`, by their names."""
        feeds = {}
        for name in session.inputs:
            if name == "input_ids":
                feeds[name] = self._runtime.value(tokens)
            elif name == _HIDDEN:
                # With a past nothing reads it, but a merged decoder quantises it all the same: one frame will do.
                states = np.zeros((len(tokens), 1, self._width), np.float32) if hidden is None else hidden
                feeds[name] = self._hidden(session, states)
            elif name == CAUSAL_MASK:
                feeds[name] = self._runtime.value(_causal_mask(tokens.shape[1], _length(past)))
            elif name == SHARED_AUDIO:
                recordings = next(iter(cross.values())).shape()[0]
                feeds[name] = self._runtime.value(np.array([recordings, -1, self._width]))
            elif name == "use_cache_branch":
                feeds[name] = self._runtime.value(np.array([past is not None]))
            elif name == "cache_position":
                start = _length(past)
                feeds[name] = self._runtime.value(np.arange(start, start + tokens.shape[1]))
            elif name.startswith(_PAST):
                values = (past if _OWN in name else cross if past is not None else None) or {}
                feeds[name] = values.get(name) or self._nothing(session, name, len(tokens))
            else:
                raise Unsupported(f"this Whisper has an unknown input, {name}: take another export of the model")
        return feeds

    def _nothing(self, session: OnnxSession, name: str, rows: int) -> Any:
        """Keys or values of zero tokens."""
        kept = self._empty.setdefault(rows, {})
        if name not in kept:
            shape = (rows, self._heads, 0, self._width // self._heads)
            kept[name] = self._runtime.value(np.zeros(shape, session.dtype(name)))
        return kept[name]

    def _hidden(self, session: OnnxSession, hidden: Floats) -> Any:
        return self._runtime.value(hidden.astype(session.dtype(_HIDDEN), copy=False))

    def _present(self, session: OnnxSession, feeds: Values, kind: str) -> Values:
        names = [name for name in session.outputs if name.startswith(_PRESENT) and kind in name]
        values = session.run(feeds, names)
        return {_PAST + name.removeprefix(_PRESENT): value for name, value in zip(names, values, strict=True)}


def _length(past: Values | None) -> int:
    """How many tokens there are in a past."""
    return int(next(iter(past.values())).shape()[2]) if past else 0


def _by_rows(attention: Floats, rows: int) -> Floats:
    """Cross-attention, (recordings, heads, tokens of all its rows, frames), as (rows, heads, tokens, frames)."""
    recordings, heads, _, frames = attention.shape
    if recordings == rows:
        return attention
    apart = attention.reshape(recordings, heads, rows // recordings, -1, frames)
    return apart.swapaxes(1, 2).reshape(rows, heads, -1, frames)


def _causal_mask(count: int, before: int) -> Floats:
    """What is added to the scores of `count` tokens after `before` others: (1, count, before + count). A token must not
    see what follows it. For one token there is nothing to hide."""
    if count == 1:
        return np.zeros((1, 1, 1), np.float32)
    mask = np.zeros((1, count, before + count), np.float32)
    mask[0, :, before:] = np.triu(np.full((count, count), _HIDDEN_SCORE, np.float32), 1)
    return mask


def load_decoder(runtime: Runtime, files: WhisperFiles, *, rewrite: bool) -> Decoder:
    """The decoder of `files`; from rewritten graphs, if `rewrite` is set and the files allow it."""
    if rewrite:
        try:
            decoder = _rewritten(runtime, files)
        except EngineDown as error:  # ONNX Runtime has `MatMulNBits` with 8 bits since 1.22
            _log.warning("%s runs as it was published, slower and less exact: %s", files.name, error)
        else:
            if decoder is not None:
                return decoder
    session = runtime.session(files.decoder_with_past or files.decoder)
    if files.merged:
        return Decoder(runtime, files, None, lambda: session, session)
    return Decoder(runtime, files, None, lambda: runtime.session(files.decoder), session)


def _rewritten(runtime: Runtime, files: WhisperFiles) -> Decoder | None:
    path = files.decoder_with_past or files.decoder
    step = step_graph(path)  # the largest comes first
    loaded = None if step is None else runtime.session(step, beside=path)
    del step
    cross = None if loaded is None else cross_graph(files.decoder)
    if loaded is None or cross is None:
        return None
    cross_session = runtime.session(cross, arena=False, beside=files.decoder)
    if set(cross_session.inputs) != {_HIDDEN}:
        return None
    return Decoder(runtime, files, cross_session, lambda: _prompt(runtime, files), loaded)


def _prompt(runtime: Runtime, files: WhisperFiles) -> OnnxSession:
    return runtime.session(prompt_graph(files.decoder) or files.decoder, beside=files.decoder)
