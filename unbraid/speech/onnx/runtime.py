"""ONNX Runtime: sessions on the processor or on an NVIDIA GPU, with the settings that speech models need.

Values stay `OrtValue`s between runs, so that the key-value cache of a decoder is never copied. On a GPU outputs are
bound to its memory and stay there until somebody asks for their `numpy()`. Whisper and Moonshine share this module;
which inputs a graph has and what to feed is theirs.

One private field is used: `InferenceSession._model_bytes`, see `Runtime.session`. tests/speech/onnx/test_runtime.py
fails with its name when a version of ONNX Runtime changes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...engines.base import EngineDown, EngineFailed
from . import Device

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]
Values = dict[str, Any]
"""`OrtValue`s by the names of the inputs that they are for. Their memory is ONNX Runtime's or numpy's."""

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_ERRORS_ONLY = 3  # ONNX Runtime's log level
_NO_CUDA = (
    "ONNX Runtime cannot use a GPU: {}. Install onnxruntime-gpu in place of onnxruntime, with the CUDA and cuDNN that "
    "it was built for, or take the device auto or cpu"
)


class Runtime:
    """ONNX Runtime, with the settings of one model."""

    def __init__(self, threads: int | None, device: Device = "cpu") -> None:
        """Raises `EngineDown` where onnxruntime is missing, or where it has no GPU and must have one."""
        try:
            self._library: Any = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise EngineDown(f"speech models run on onnxruntime ({error}): pip install 'unbraid[speech]'") from error
        self._threads = threads or 0
        has_cuda = _CUDA in self._library.get_available_providers()
        if device == "cuda" and not has_cuda:
            raise EngineDown(_NO_CUDA.format("it has no CUDA provider"))
        self._must = device == "cuda"
        self._cuda = device != "cpu" and has_cuda

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Where the sessions run. With `auto` that is certain once the first one is loaded."""
        return "cuda" if self._cuda else "cpu"

    def session(self, source: Path | bytes, *, arena: bool = True, beside: Path | None = None) -> OnnxSession:
        """Load a graph.

        source: a file, or the bytes of one.
        beside: the file that bytes were made of, and refer to (`write_model`).
        arena: whether memory is kept from one run to the next. Encoders do without: they would keep hundreds of
            megabytes, and are hardly faster with them. The arena then shrinks after each run; with no arena at all,
            the first run would need four times as much memory as the later ones.
        """
        loaded = self._load(source, [_CUDA, _CPU] if self._cuda else [_CPU], beside)
        if self._cuda and _CUDA not in loaded.get_providers():
            # CUDA's libraries or a GPU are missing: ONNX Runtime goes on with the processor, and logs why.
            if self._must:
                raise EngineDown(_NO_CUDA.format("its CUDA provider found no GPU, or not CUDA's and cuDNN's libraries"))
            self._cuda = False
        loaded.disable_fallback()  # an error in a run is an error
        # A session keeps the bytes that it was loaded from, in case it must load them again on another provider. That
        # is as much memory as the weights, and it never has to.
        loaded._model_bytes = None
        if arena:
            return OnnxSession(loaded, device=self.device)
        return OnnxSession(loaded, self.run_options(), device=self.device)

    def run_options(self) -> Any:
        """Options of a run after which the arena shrinks. Setting its `terminate` ends the run, from any thread."""
        options = self._library.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return options

    def _load(self, source: Path | bytes, providers: list[str], beside: Path | None) -> Any:
        options = self._library.SessionOptions()
        if beside is not None:  # where it is, not a link to it: ONNX Runtime reads nothing out of its folder
            folder = str(beside.resolve().parent)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        # By default idle threads spin: a third more processor time, and no faster.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = self._threads
        # A plan of memory is kept for each shape of the inputs, and a decoder has another one in each step.
        options.enable_mem_pattern = False
        options.log_severity_level = _ERRORS_ONLY
        model = str(source) if isinstance(source, Path) else source
        try:
            return self._library.InferenceSession(model, options, providers=providers)
        except Exception as error:  # its errors have no common base
            name = source.name if isinstance(source, Path) else "a rewritten graph"
            raise EngineDown(f"ONNX Runtime cannot load {name}: {error}") from error

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


class OnnxSession:
    """A loaded graph."""

    def __init__(self, loaded: Any, options: Any = None, device: str = "cpu", *, bind: bool | None = None) -> None:
        """bind: whether outputs are bound to the memory of the device; by default on all but the processor."""
        self._loaded = loaded
        self._options = options
        self._device = device
        self._bind = device != "cpu" if bind is None else bind
        self.inputs = {value.name: value.type for value in loaded.get_inputs()}
        self.outputs = tuple(value.name for value in loaded.get_outputs())

    def dtype(self, name: str) -> Any:
        """The numpy type of an input."""
        return _TYPES[self.inputs[name]]

    def run(self, feeds: Values, outputs: Sequence[str], options: Any = None) -> list[Any]:
        """Run the graph; the outputs come as `OrtValue`s.

        options: of this run, in place of those of all (`Runtime.run_options`).
        """
        options = self._options if options is None else options
        try:
            if self._bind:
                return self._run_bound(feeds, outputs, options)
            values: list[Any] = self._loaded.run_with_ort_values(list(outputs), feeds, options)
        except Exception as error:
            raise EngineFailed(f"ONNX Runtime failed: {error}") from error
        return values

    def _run_bound(self, feeds: Values, outputs: Sequence[str], options: Any) -> list[Any]:
        """With plain runs, outputs would be copied to the processor's memory."""
        binding = self._loaded.io_binding()
        for name, value in feeds.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, self._device)
        self._loaded.run_with_iobinding(binding, options)
        values: list[Any] = binding.get_outputs()
        return values
