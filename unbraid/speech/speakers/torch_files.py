"""Weights in the files that `torch.save` writes, read without PyTorch: a zip with a pickle of names and raw numbers.

The pickle may name three things: a tensor, the storage of its numbers, and an ordered dictionary. Any other is refused,
so that a file cannot run code.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.errors import ModelError

Weights = dict[str, NDArray[Any]]
_STORAGES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8", "IntStorage": "<i4"}


def read_weights(path: Path) -> Weights:
    """The tensors of a file, by their names. Raises `ModelError`."""
    try:
        with zipfile.ZipFile(path) as file:
            pickled = next(name for name in file.namelist() if name.endswith("/data.pkl"))
            weights = _Reader(file, pickled).load()
    except (OSError, zipfile.BadZipFile, StopIteration, KeyError, ValueError, EOFError, pickle.PickleError) as error:
        raise ModelError(f"{path} is no file of weights that PyTorch has written: {error}") from error
    if not isinstance(weights, dict) or not all(isinstance(value, np.ndarray) for value in weights.values()):
        raise ModelError(f"{path} has more than weights: save the model's state_dict alone")
    return dict(weights)


class _Reader(pickle.Unpickler):
    def __init__(self, file: zipfile.ZipFile, name: str) -> None:
        super().__init__(io.BytesIO(file.read(name)))
        self._file = file
        self._folder = name.rpartition("/")[0]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _STORAGES:
            return np.dtype(_STORAGES[name])
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no weight")

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        _, kind, key, *_ = pid
        return np.frombuffer(self._file.read(f"{self._folder}/data/{key}"), kind)


def _tensor(storage: NDArray[Any], offset: int, sizes: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> Any:
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if min((offset, *sizes, *strides), default=0) < 0 or (0 not in sizes and last >= len(storage)):
        raise ValueError("a tensor ends after its numbers")
    steps = tuple(stride * storage.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], sizes, steps).copy()
