"""Weights of CAM++'s shape, made up and small, in a file as PyTorch writes it; and a model that hears levels."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbraid.speech.audio.decode import Samples
from unbraid.speech.onnx.runtime import Floats

CHANNELS, GROWTH, WIDE, SIZE = 4, 2, 4, 6


def made_weights() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(5)
    weights: dict[str, NDArray[Any]] = {}

    def conv(name: str, *shape: int, bias: bool = False) -> None:
        weights[f"{name}.weight"] = random.normal(0, 0.3, shape).astype(np.float32)
        if bias:
            weights[f"{name}.bias"] = random.normal(0, 0.3, shape[0]).astype(np.float32)

    def norm(name: str, size: int, *, affine: bool = True) -> None:
        for part in ("weight", "bias", "running_mean") if affine else ("running_mean",):
            weights[f"{name}.{part}"] = random.normal(0.5, 0.2, size).astype(np.float32)
        weights[f"{name}.running_var"] = random.uniform(0.5, 1.5, size).astype(np.float32)
        weights[f"{name}.num_batches_tracked"] = np.array(7, np.int64)

    conv("head.conv1", CHANNELS, 1, 3, 3)
    norm("head.bn1", CHANNELS)
    for layer in ("head.layer1", "head.layer2"):
        for block in (0, 1):
            for number in (1, 2):
                conv(f"{layer}.{block}.conv{number}", CHANNELS, CHANNELS, 3, 3)
                norm(f"{layer}.{block}.bn{number}", CHANNELS)
        conv(f"{layer}.0.shortcut.0", CHANNELS, CHANNELS, 1, 1)
        norm(f"{layer}.0.shortcut.1", CHANNELS)
    conv("head.conv2", CHANNELS, CHANNELS, 3, 3)
    norm("head.bn2", CHANNELS)
    conv("xvector.tdnn.linear", 8, CHANNELS * 10, 5)
    norm("xvector.tdnn.nonlinear.batchnorm", 8)
    channels = 8
    for number in (1, 2, 3):
        for depth in (1, 2):
            name = f"xvector.block{number}.tdnnd{depth}"
            norm(f"{name}.nonlinear1.batchnorm", channels)
            conv(f"{name}.linear1", WIDE, channels, 1)
            norm(f"{name}.nonlinear2.batchnorm", WIDE)
            conv(f"{name}.cam_layer.linear_local", GROWTH, WIDE, 3)
            conv(f"{name}.cam_layer.linear1", WIDE // 2, WIDE, 1, bias=True)
            conv(f"{name}.cam_layer.linear2", GROWTH, WIDE // 2, 1, bias=True)
            channels += GROWTH
        norm(f"xvector.transit{number}.nonlinear.batchnorm", channels)
        conv(f"xvector.transit{number}.linear", channels // 2, channels, 1)
        channels //= 2
    norm("xvector.out_nonlinear.batchnorm", channels)
    conv("xvector.dense.linear", SIZE, 2 * channels, 1)
    norm("xvector.dense.nonlinear.batchnorm", SIZE, affine=False)
    return weights


class _Global:
    """What pickle writes as the name of something in PyTorch."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__qualname__, self.__name__ = module, name, name


class _Storage:
    def __init__(self, key: str, values: NDArray[Any]) -> None:
        self.key, self.values = key, values


class _Tensor:
    def __init__(self, storage: _Storage) -> None:
        self.storage = storage


_Slow: Any = pickle._Pickler  # Python's own: C's would look names up


class _Pickler(_Slow):  # type: ignore[misc]
    """Writes tensors as `torch.save` does."""

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Storage):
            return None
        kind = {"f": "FloatStorage", "i": "LongStorage"}[obj.values.dtype.kind]
        return ("storage", _Global("torch", kind), obj.key, "cpu", obj.values.size)

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _Global):
            self.write(pickle.GLOBAL + f"{obj.__module__}\n{obj.__name__}\n".encode())
        elif isinstance(obj, _Tensor):
            values = obj.storage.values
            strides = tuple(step // values.itemsize for step in values.strides)
            self.save(_Global("torch._utils", "_rebuild_tensor_v2"))
            self.save((obj.storage, 0, values.shape, strides, False, {}))
            self.write(pickle.REDUCE)
        else:
            super().save(obj, save_persistent_id)


def write_weights(path: Path, weights: dict[str, NDArray[Any]]) -> Path:
    """A file as `torch.save` writes it."""
    storages = {name: _Storage(str(number), value) for number, (name, value) in enumerate(weights.items())}
    pickled = io.BytesIO()
    _Pickler(pickled, 2).dump({name: _Tensor(storage) for name, storage in storages.items()})
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickled.getvalue())
        for storage in storages.values():
            file.writestr(f"archive/data/{storage.key}", np.ascontiguousarray(storage.values).tobytes())
    return path


class LevelVoices:
    """A model that takes how loud a window is for who speaks."""

    def vectors(self, windows: Sequence[Samples]) -> Floats:
        numbers = [round(10 * float(np.abs(window).max())) for window in windows]
        return np.eye(11, dtype=np.float32)[numbers]
