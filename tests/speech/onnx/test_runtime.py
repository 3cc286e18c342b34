"""ONNX Runtime: what is used of its private parts, and whose memory values lie in."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from unbraid.engines.base import EngineDown
from unbraid.speech.onnx.graph import Graph, GraphNode, OnnxModel, write_model
from unbraid.speech.onnx.protobuf import join
from unbraid.speech.onnx.runtime import OnnxSession, Runtime


def a_graph() -> bytes:
    """`y = x`, for a float."""
    dimension = join([(1, 1)])
    tensor = join([(1, 1), (2, join([(1, dimension)]))])
    value = join([(1, tensor)])
    x, y = (join([(1, name), (2, value)]) for name in (b"x", b"y"))
    return write_model(OnnxModel(Graph([GraphNode("Identity", ["x"], ["y"])], {}, {"x": x}, {"y": y}), {"": 17}, 8))


def test_the_private_field_that_keeps_a_graph_is_still_there() -> None:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    data = a_graph()
    session: Any = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert getattr(session, "_model_bytes", None) is data, (
        f"onnxruntime {onnxruntime.__version__} no longer keeps a graph in InferenceSession._model_bytes: see whether "
        "it keeps it elsewhere, and change Runtime.session in unbraid/speech/onnx/runtime.py"
    )


def test_a_session_does_not_keep_the_bytes_of_its_graph() -> None:
    """They would be as much memory as the weights once more."""
    data = a_graph()
    before = sys.getrefcount(data)
    session = Runtime(1).session(data)
    assert sys.getrefcount(data) == before, (
        "a session of ONNX Runtime keeps the bytes that it was loaded from: Runtime.session clears "
        "InferenceSession._model_bytes, which is no longer the only reference"
    )
    [y] = session.run({"x": Runtime(1).value(np.array([3.0], np.float32))}, ["y"])
    assert y.numpy().tolist() == [3.0]


def test_rows_that_are_left_keep_their_memory() -> None:
    """Rows are dropped from a batch one after the other. What is left of them once lay in memory that was freed."""
    runtime = Runtime(1)
    rows = np.arange(4.0, dtype=np.float32)[:, None].repeat(1 << 10, axis=1)
    values = {"x": runtime.value(rows)}
    for left, total in (([1, 2, 3], 4), ([0, 1], 3), ([0], 2)):
        values = runtime.rows(values, left, total)
    others = [np.zeros_like(rows[1:]) for _ in range(20)]
    assert (values["x"].numpy() == 1.0).all()
    assert len(others) == 20


# --- A GPU, which the tests do not have ------------------------------------------------------------------------------


class Pretending:
    """ONNX Runtime with a CUDA provider that finds a GPU, or not. What it runs, it runs on the processor."""

    def __init__(self, *, finds_gpu: bool) -> None:
        self._library: Any = importlib.import_module("onnxruntime")
        self.finds_gpu = finds_gpu
        self.asked: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def get_available_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def InferenceSession(self, source: Any, options: Any, providers: list[str]) -> Any:  # noqa: N802
        self.asked.append(providers)
        session = self._library.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        if self.finds_gpu:
            session.get_providers = lambda: providers
        return session


@pytest.mark.parametrize("finds_gpu", [True, False])
def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch, finds_gpu: bool) -> None:
    library = Pretending(finds_gpu=finds_gpu)
    monkeypatch.setitem(sys.modules, "onnxruntime", library)
    runtime = Runtime(1, "auto")
    runtime.session(a_graph())
    runtime.session(a_graph())
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert runtime.device == ("cuda" if finds_gpu else "cpu")
    assert library.asked == [both, both if finds_gpu else ["CPUExecutionProvider"]]
    library.asked.clear()
    Runtime(1, "cpu").session(a_graph())
    assert library.asked == [["CPUExecutionProvider"]]


def test_a_gpu_that_must_be_there_and_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if "CUDAExecutionProvider" not in importlib.import_module("onnxruntime").get_available_providers():
        with pytest.raises(EngineDown, match=r"no CUDA provider\. Install onnxruntime-gpu"):
            Runtime(1, "cuda")
    monkeypatch.setitem(sys.modules, "onnxruntime", Pretending(finds_gpu=False))
    with pytest.raises(EngineDown, match="found no GPU"):
        Runtime(1, "cuda").session(a_graph())


def test_outputs_that_stay_on_the_device() -> None:
    """As on a GPU, in the memory of the processor: outputs feed the next run, and are read by `numpy`."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    session = OnnxSession(onnxruntime.InferenceSession(a_graph(), providers=["CPUExecutionProvider"]), bind=True)
    value = Runtime(1).value(np.array([3.0], np.float32))
    for _ in range(3):
        [value] = session.run({"x": value}, ["y"])
    assert value.numpy().tolist() == [3.0]
    assert value.shape() == [1]
