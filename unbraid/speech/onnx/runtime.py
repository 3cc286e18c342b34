"""ONNX Runtime: sessions on the processor, with the settings that speech models need.

Values stay `OrtValue`s between runs, so that the key-value cache of a decoder is never copied. Whisper and Moonshine
share this module; which inputs a graph has and what to feed is theirs.

One private field is used: `InferenceSession._model_bytes`, see `Runtime.session`. tests/speech/onnx/test_runtime.py
fails with its name when a version of ONNX Runtime changes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.base import EngineDown, EngineFailed

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]
Values = dict[str, Any]
"""`OrtValue`s by the names of the inputs that they are for. Their memory is ONNX Runtime's or numpy's."""

_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_ERRORS_ONLY = 3  # ONNX Runtime's log level


class Runtime:
    """ONNX Runtime, with the settings of one model."""

    def __init__(self, threads: int | None) -> None:
        try:
            self._library: Any = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise EngineDown(f"speech models run on onnxruntime ({error}): pip install 'unbraid[speech]'") from error
        self._threads = threads or 0

    def session(self, source: Path | bytes, *, arena: bool = True) -> Session:
        """Load a graph.

        source: a file, or the bytes of one.
        arena: whether memory is kept from one run to the next. Encoders do without: they would keep hundreds of
            megabytes, and are hardly faster with them. The arena then shrinks after each run; with no arena at all,
            the first run would need four times as much memory as the later ones.
        """
        options = self._library.SessionOptions()
        # By default idle threads spin: a third more processor time, and no faster.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = self._threads
        options.log_severity_level = _ERRORS_ONLY
        given = str(source) if isinstance(source, Path) else source
        try:
            loaded = self._library.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base
            name = source.name if isinstance(source, Path) else "a rewritten graph"
            raise EngineDown(f"ONNX Runtime cannot load {name}: {error}") from error
        # A session keeps the bytes that it was loaded from, in case it must load them again on another provider. That
        # is as much memory as the weights, and there is no other provider here.
        loaded._model_bytes = None
        if arena:
            return Session(loaded)
        shrinking = self._library.RunOptions()
        shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return Session(loaded, shrinking)

    def value(self, array: NDArray[Any]) -> Any:
        """An `OrtValue` that shares the memory of `array`."""
        return self._library.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))

    def rows(self, values: Values, rows: Sequence[int], total: int) -> Values:
        """Select rows of values with `total` rows each. Nothing is copied if these are all rows, or the first ones."""
        if list(rows) == list(range(total)):
            return values
        first = list(rows) == list(range(len(rows)))
        taken = {}
        for name, value in values.items():
            array = value.numpy()
            taken[name] = self.value(array[: len(rows)] if first else array[list(rows)])
            if first:  # a view: the memory belongs to `value`, which must live as long
                taken[name].source = value
        return taken


class Session:
    """A loaded graph."""

    def __init__(self, loaded: Any, options: Any = None) -> None:
        self._loaded = loaded
        self._options = options
        self.inputs = {value.name: value.type for value in loaded.get_inputs()}
        self.outputs = tuple(value.name for value in loaded.get_outputs())

    def dtype(self, name: str) -> Any:
        """The numpy type of an input."""
        return _TYPES[self.inputs[name]]

    def run(self, feeds: Values, outputs: Sequence[str]) -> list[Any]:
        """Run the graph; the outputs come as `OrtValue`s."""
        try:
            found: list[Any] = self._loaded.run_with_ort_values(list(outputs), feeds, self._options)
        except Exception as error:
            raise EngineFailed(f"ONNX Runtime failed: {error}") from error
        return found
