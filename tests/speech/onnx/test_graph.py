"""ONNX files taken apart and put together: what is not changed stays, and what is no ONNX file is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unbraid.models import ModelError
from unbraid.speech.onnx.graph import (
    Array,
    Graph,
    GraphNode,
    OnnxModel,
    integer,
    read_array,
    read_file,
    read_model,
    tensor_input,
    write_array,
    write_model,
)
from unbraid.speech.onnx.runtime import Runtime
from unbraid.speech.whisper.graphs import cross_graph, float_encoder, step_graph

from ..whisper.whisper_models import files


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([-3, 5], np.int64),
        np.array(7, np.uint8),
        np.zeros((0, 4), np.int8),
        np.array([[1.5]], np.float16).T,
        np.arange(8, dtype=np.float32).reshape(2, 4).T,
        np.array([True, False]),
    ],
)
def test_arrays(array: Array) -> None:
    found = read_array(write_array("name", array))
    assert found is not None
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_a_graph() -> None:
    graph = Graph(
        [
            GraphNode("Add", ["x", "one"], ["y"]),
            GraphNode("Sub", ["x", "two"], ["unused"]),
            GraphNode("MatMulNBits", ["y"], ["z"], [integer("K", 300)], "com.microsoft"),
        ],
        {},
        {"x": b"\n\x01x"},
        {"z": b"\n\x01z", "unused": b"\n\x06unused"},
    )
    graph.put("one", np.ones(1, np.float32))
    graph.put("two", np.ones(1, np.float32))
    graph = graph.pruned(["z"])
    assert [node.op for node in graph.nodes] == ["Add", "MatMulNBits"]
    assert list(graph.tensors) == ["one"]
    found = read_model(write_model(OnnxModel(graph, {"": 17, "com.microsoft": 1}, 8)))
    assert found.opsets == {"": 17, "com.microsoft": 1}
    assert found.ir_version == 8
    assert [(node.op, node.inputs, node.outputs, node.domain) for node in found.graph.nodes] == [
        ("Add", ["x", "one"], ["y"], ""),
        ("MatMulNBits", ["y"], ["z"], "com.microsoft"),
    ]
    assert bytes(found.graph.nodes[1].attributes[0]) == integer("K", 300)
    np.testing.assert_array_equal(found.graph.array("one"), np.ones(1, np.float32))
    assert found.graph.array("x") is None


@pytest.mark.system
def test_a_real_file_is_left_as_it_is() -> None:
    model = read_file(files("whisper-tiny").decoder)
    again = read_model(write_model(model))
    assert again.opsets == model.opsets
    assert again.graph.nodes == model.graph.nodes
    assert again.graph.tensors == model.graph.tensors
    assert again.graph.inputs == model.graph.inputs
    assert again.graph.outputs == model.graph.outputs


def test_a_graph_in_two_halves() -> None:
    graph = Graph([GraphNode("Add", ["x", "one"], ["y"]), GraphNode("Mul", ["y", "x"], ["z"])], {}, {}, {})
    graph.put("one", np.ones(1, np.float32))
    graph.inputs["x"] = tensor_input("x", 1)
    graph.outputs["z"] = tensor_input("z", 1)
    middle = {"y": tensor_input("y", 1)}
    values = {"x": Runtime(1).value(np.array([2.0, 3.0], np.float32))}
    for half, name in ((graph.between({}, middle), "y"), (graph.between(middle, graph.outputs), "z")):
        session = Runtime(1).session(write_model(OnnxModel(half, {"": 17}, 8)))
        assert session.inputs.keys() == values.keys()
        [values[name]] = session.run(values, [name])
    np.testing.assert_array_equal(values["z"].numpy(), [6.0, 12.0])
    assert not graph.between(middle, graph.outputs).tensors


def test_large_weights_stay_in_the_file_that_they_came_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graph = Graph([GraphNode("Gather", ["table", "x"], ["y"])], {}, {}, {})
    graph.inputs["x"] = tensor_input("x", 1, np.int64)
    graph.outputs["y"] = tensor_input("y", 2, np.uint8)
    graph.put("table", rng.integers(0, 255, (1 << 16, 32), np.uint8))
    path = tmp_path / "model.onnx"
    path.write_bytes(write_model(OnnxModel(graph.pruned(["y"]), {"": 17}, 8)))
    model = read_file(path)
    whole, small = write_model(model), write_model(model, path.name)
    assert len(small) < 1000 < 1 << 21 < len(whole)
    rows = Runtime(1).value(np.array([5, 65_535]))
    [here] = Runtime(1).session(whole).run({"x": rows}, ["y"])
    [there] = Runtime(1).session(small, beside=path).run({"x": rows}, ["y"])
    np.testing.assert_array_equal(here.numpy(), there.numpy())
    model.graph.put("table", np.zeros((1 << 16, 32), np.uint8))
    assert len(write_model(model, path.name)) > 1 << 21, "what was changed is not in the file"


@pytest.mark.system
def test_an_encoder_computes_attention_in_blocks() -> None:
    encoder = float_encoder(files("whisper-tiny").encoder)
    assert encoder is not None
    nodes = [node.op for node in read_model(encoder).graph.nodes]
    assert (nodes.count("MultiHeadAttention"), nodes.count("Softmax")) == (4, 0)


@pytest.mark.system
def test_graphs_without_quantised_weights_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "encoder_model.onnx"
    encoder = float_encoder(files("whisper-tiny").encoder)
    assert encoder is not None
    path.write_bytes(encoder)
    assert float_encoder(path) is step_graph(path) is cross_graph(path) is None


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"no model at all", b"\x3a\xff\x01", b"\x3a\x03\x0a\x09\x00", b"\x08\x01"]
)
def test_what_is_no_model(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.onnx.*(not an ONNX model|empty)"):
        read_file(path)
