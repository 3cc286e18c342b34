"""ONNX files: read, pruned and written, as far as it takes to rewrite a graph.

An ONNX file is one protobuf message. The field numbers below are those of onnx.proto. Only nodes, weights, inputs and
outputs are taken apart; attributes and types are kept as whole messages and passed on unchanged.

Why not the `onnx` package? It would replace this module and `protobuf`, and was measured with whisper-base (onnx
1.23): 33 MB more to install, together with ml_dtypes; protobuf 6.31 or later, which other packages in an environment
with vLLM may not allow; 0.5 s instead of 0.1 s to read and write a decoder, and 160 MB instead of 105 MB of memory at
the peak, because it copies weights that stay in the mapped file here. Users would pay for it at each start.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.errors import ModelError
from .protobuf import Field, Raw, as_bytes, as_number, as_text, fields, header, join, pieces, varints

Array = NDArray[Any]

# Field numbers in onnx.proto.
_MODEL_IR_VERSION, _MODEL_GRAPH, _MODEL_OPSET = 1, 7, 8
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 2, 5, 11, 12
_VALUE_NAME, _VALUE_TYPE, _TYPE_TENSOR = 1, 2, 1
_TENSOR_TYPE_ELEMENT, _TENSOR_TYPE_SHAPE, _SHAPE_DIM, _DIM_PARAM = 1, 2, 1, 2
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_INTS, _ATTRIBUTE_TYPE = (
    1,
    3,
    5,
    6,
    8,
    20,
)
_TENSOR_DIMS, _TENSOR_DATA_TYPE, _TENSOR_FLOATS, _TENSOR_INT32S, _TENSOR_INT64S = 1, 2, 4, 5, 7
_TENSOR_NAME, _TENSOR_RAW_DATA, _TENSOR_EXTERNAL, _TENSOR_DATA_LOCATION = 8, 9, 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_INT_ATTRIBUTE, _TENSOR_ATTRIBUTE, _INTS_ATTRIBUTE = 2, 4, 7  # AttributeProto.INT, TENSOR and INTS
_TYPES = {1: "f4", 2: "u1", 3: "i1", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8"}  # TensorProto.DataType
_FLOAT, _HALF = 1, 10
_ANYWHERE = (2, 3)  # types that need no alignment
_LARGE = 1 << 20
_TYPE_NUMBERS = {np.dtype(kind): number for number, kind in _TYPES.items()}


@dataclass(slots=True)
class GraphNode:
    """One operation."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: list[Raw] = field(default_factory=list)
    """AttributeProto messages."""
    domain: str = ""

    def graphs(self) -> dict[str, Graph]:
        """The branches of an `If`, by their names."""
        branches = {}
        for attribute in self.attributes:
            parts = dict(fields(attribute))
            if _ATTRIBUTE_GRAPH in parts:
                branches[as_text(parts[_ATTRIBUTE_NAME])] = read_graph(as_bytes(parts[_ATTRIBUTE_GRAPH]))
        return branches

    def integer(self, name: str) -> int | None:
        """The attribute of that name, if it is a number."""
        for attribute in self.attributes:
            parts = dict(fields(attribute))
            if as_text(parts[_ATTRIBUTE_NAME]) == name and _ATTRIBUTE_INT in parts:
                return as_number(parts[_ATTRIBUTE_INT])
        return None

    def constant(self) -> Array | None:
        """The value of a `Constant` or a `ConstantOfShape`, if it is a tensor."""
        parts = dict(fields(self.attributes[0])) if self.attributes else {}
        return read_array(as_bytes(parts[_ATTRIBUTE_TENSOR])) if _ATTRIBUTE_TENSOR in parts else None


@dataclass(slots=True)
class Graph:
    """Nodes in topological order, with their weights, inputs and outputs."""

    nodes: list[GraphNode]
    tensors: dict[str, Raw]
    """The weights, as TensorProto messages."""
    inputs: dict[str, Raw]
    """ValueInfoProto messages, like the outputs."""
    outputs: dict[str, Raw]

    def array(self, name: str) -> Array | None:
        """A weight; None if there is none of that name, or if it lies in another file."""
        return read_array(self.tensors[name]) if name in self.tensors else None

    def put(self, name: str, value: Array) -> str:
        """Add a weight; returns its name."""
        self.tensors[name] = write_array(name, value)
        return name

    def pruned(self, outputs: Iterable[str]) -> Graph:
        """The part of the graph that computes `outputs`."""
        return self.between({}, {name: self.outputs[name] for name in outputs})

    def between(self, inputs: Mapping[str, Raw], outputs: Mapping[str, Raw]) -> Graph:
        """The part of the graph that computes `outputs`, any values of it, from `inputs` and its own inputs."""
        needed = set(outputs)
        nodes = []
        for node in reversed(self.nodes):
            if any(name in needed and name not in inputs for name in node.outputs):
                nodes.append(node)
                needed.update(_read_by(node))
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in needed}
        every = {**self.inputs, **inputs}
        read = {name: value for name, value in every.items() if name in needed and name not in tensors}
        return Graph(nodes[::-1], tensors, read, dict(outputs))


@dataclass(slots=True)
class OnnxModel:
    """A graph, and the versions of the operations in it."""

    graph: Graph
    opsets: dict[str, int]
    ir_version: int
    mapped: memoryview | None = field(default=None, repr=False)
    """The file that it was read from."""


def _read_by(node: GraphNode) -> Iterator[str]:
    yield from node.inputs
    for graph in node.graphs().values():  # branches read values of the outer graph, too
        for inner in graph.nodes:
            yield from _read_by(inner)
        yield from graph.outputs


def read_file(path: Path) -> OnnxModel:
    """The model in a file, which stays mapped while its weights are used. Raises `ModelError`."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ModelError(f"{path} is empty: download it again") from error
    try:
        model = read_model(memoryview(data))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    model.mapped = memoryview(data)
    return model


def read_model(data: Raw) -> OnnxModel:
    """The model in the bytes of a file. Raises `ModelError`."""
    graph: Graph | None = None
    opsets: dict[str, int] = {}
    ir_version = 8
    try:
        for number, value in fields(data):
            if number == _MODEL_IR_VERSION:
                ir_version = as_number(value)
            elif number == _MODEL_GRAPH:
                graph = read_graph(as_bytes(value))
            elif number == _MODEL_OPSET:
                parts = dict(fields(as_bytes(value)))
                opsets[as_text(parts.get(_OPSET_DOMAIN, b""))] = as_number(parts.get(_OPSET_VERSION, 1))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ModelError(f"the file is not an ONNX model, or damaged ({error!r})") from error
    if graph is None:
        raise ModelError("the file is not an ONNX model: there is no graph in it")
    return OnnxModel(graph, opsets, ir_version)


def write_model(model: OnnxModel, source: str = "") -> bytes:
    """The bytes of a file, for `read_model` and ONNX Runtime.

    source: the name of the file that the model was read from. Large weights of 8 bits that are as they were then stay
        in it; ONNX Runtime maps them, if it is told the folder (`Runtime.session`).
    """
    mapped = model.mapped if source else None
    weights = {name: _left_in_file(one, source, mapped) if mapped else one for name, one in model.graph.tensors.items()}
    graph = _graph_pieces(replace(model.graph, tensors=weights))
    size = sum(len(piece) for piece in graph)
    opsets = [
        (_MODEL_OPSET, join([(_OPSET_DOMAIN, domain.encode()), (_OPSET_VERSION, version)]))
        for domain, version in model.opsets.items()
    ]
    # The graph holds the weights: it is copied only once, here.
    return b"".join([join([(_MODEL_IR_VERSION, model.ir_version), *opsets]), header(_MODEL_GRAPH, size), *graph])


def read_graph(data: Raw) -> Graph:
    """A graph, of a model or of a branch. The types of intermediate values are dropped, because rewriting changes
    them."""
    graph = Graph([], {}, {}, {})
    for number, value in fields(data):
        if number == _GRAPH_NODE:
            graph.nodes.append(_read_node(as_bytes(value)))
        elif number == _GRAPH_INITIALIZER:
            graph.tensors[_name(as_bytes(value), _TENSOR_NAME)] = as_bytes(value)
        elif number == _GRAPH_INPUT:
            graph.inputs[_name(as_bytes(value), _VALUE_NAME)] = as_bytes(value)
        elif number == _GRAPH_OUTPUT:
            graph.outputs[_name(as_bytes(value), _VALUE_NAME)] = as_bytes(value)
    return graph


def _graph_pieces(graph: Graph) -> list[Raw]:
    parts: list[Field] = [(_GRAPH_NODE, _write_node(node)) for node in graph.nodes]
    parts.append((_GRAPH_NAME, b"graph"))
    parts.extend((_GRAPH_INITIALIZER, tensor) for tensor in graph.tensors.values())
    parts.extend((_GRAPH_INPUT, value) for value in graph.inputs.values())
    parts.extend((_GRAPH_OUTPUT, value) for value in graph.outputs.values())
    return pieces(parts)


def _read_node(data: Raw) -> GraphNode:
    node = GraphNode("", [], [])
    for number, value in fields(data):
        if number == _NODE_INPUT:
            node.inputs.append(as_text(value))
        elif number == _NODE_OUTPUT:
            node.outputs.append(as_text(value))
        elif number == _NODE_OP_TYPE:
            node.op = as_text(value)
        elif number == _NODE_ATTRIBUTE:
            node.attributes.append(as_bytes(value))
        elif number == _NODE_DOMAIN:
            node.domain = as_text(value)
    return node


def _write_node(node: GraphNode) -> bytes:
    parts: list[Field] = [(_NODE_INPUT, name.encode()) for name in node.inputs]
    parts.extend((_NODE_OUTPUT, name.encode()) for name in node.outputs)
    parts.append((_NODE_OP_TYPE, node.op.encode()))
    parts.extend((_NODE_ATTRIBUTE, attribute) for attribute in node.attributes)
    if node.domain:
        parts.append((_NODE_DOMAIN, node.domain.encode()))
    return join(parts)


def integer(name: str, value: int) -> bytes:
    """An attribute that is a number."""
    return join([(_ATTRIBUTE_NAME, name.encode()), (_ATTRIBUTE_INT, value), (_ATTRIBUTE_TYPE, _INT_ATTRIBUTE)])


def integers(name: str, values: Iterable[int]) -> bytes:
    """An attribute that is a list of numbers."""
    numbers: list[Field] = [(_ATTRIBUTE_INTS, value) for value in values]
    return join([(_ATTRIBUTE_NAME, name.encode()), *numbers, (_ATTRIBUTE_TYPE, _INTS_ATTRIBUTE)])


def tensor_attribute(name: str, value: Array) -> bytes:
    """An attribute that is a tensor."""
    tensor = write_array("", value)
    return join([(_ATTRIBUTE_NAME, name.encode()), (_ATTRIBUTE_TENSOR, tensor), (_ATTRIBUTE_TYPE, _TENSOR_ATTRIBUTE)])


def tensor_input(name: str, rank: int, kind: type[np.generic] = np.float32) -> bytes:
    """The ValueInfoProto of an input or an output, with sizes that are not known."""
    sizes = join([(_SHAPE_DIM, join([(_DIM_PARAM, f"{name}_{at}".encode())])) for at in range(rank)])
    tensor = join([(_TENSOR_TYPE_ELEMENT, _TYPE_NUMBERS[np.dtype(kind)]), (_TENSOR_TYPE_SHAPE, sizes)])
    return join([(_VALUE_NAME, name.encode()), (_VALUE_TYPE, join([(_TYPE_TENSOR, tensor)]))])


def _name(data: Raw, field: int) -> str:
    return next((as_text(value) for number, value in fields(data) if number == field), "")


# Tensors


def read_array(tensor: Raw) -> Array | None:
    """The values of a tensor; None if they lie in another file, or have a type that is not known here."""
    sizes: list[int] = []
    kind, data, values = 0, None, None
    for number, value in fields(tensor):
        if number == _TENSOR_DIMS:
            sizes.extend([value] if isinstance(value, int) else varints(value))
        elif number == _TENSOR_DATA_TYPE:
            kind = as_number(value)
        elif number == _TENSOR_FLOATS and not isinstance(value, int):
            values = np.frombuffer(value, "<f4")
        elif number in (_TENSOR_INT32S, _TENSOR_INT64S):
            values = np.array([value] if isinstance(value, int) else list(varints(value)))
        elif number == _TENSOR_RAW_DATA:
            data = as_bytes(value)
        elif number == _TENSOR_DATA_LOCATION and value:
            return None
    if kind not in _TYPES:
        return None
    dtype = np.dtype(_TYPES[kind])
    if data is not None:
        return np.frombuffer(data, dtype.newbyteorder("<")).reshape(sizes)
    return np.zeros(sizes, dtype) if values is None else values.astype(dtype).reshape(sizes)


def write_array(name: str, value: Array) -> bytes:
    """A tensor of that name."""
    kind = _TYPE_NUMBERS[value.dtype]
    raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    sizes: list[Field] = [(_TENSOR_DIMS, size) for size in value.shape]
    return join([*sizes, (_TENSOR_DATA_TYPE, kind), (_TENSOR_NAME, name.encode()), (_TENSOR_RAW_DATA, raw)])


def _left_in_file(tensor: Raw, source: str, mapped: memoryview) -> Raw:
    """A reference to the file, where the values of the tensor are there."""
    if len(tensor) < _LARGE:
        return tensor
    parts = list(fields(tensor))
    values = next((as_bytes(value) for number, value in parts if number == _TENSOR_RAW_DATA), b"")
    kind = next((value for number, value in parts if number == _TENSOR_DATA_TYPE), 0)
    offset = _address(values) - _address(mapped)
    if len(values) < _LARGE or kind not in _ANYWHERE or not 0 <= offset < len(mapped):
        return tensor
    place = {"location": source, "offset": str(offset), "length": str(len(values))}
    entries: list[Field] = [
        (_TENSOR_EXTERNAL, join([(_ENTRY_KEY, key.encode()), (_ENTRY_VALUE, value.encode())]))
        for key, value in place.items()
    ]
    return join([*(part for part in parts if part[0] != _TENSOR_RAW_DATA), *entries, (_TENSOR_DATA_LOCATION, 1)])


def _address(values: Raw) -> int:
    return int(np.frombuffer(values, np.uint8).ctypes.data)


# Half precision


def in_floats(path: Path) -> bytes:
    """The model in a file, with floats of 32 bits wherever it has those of 16.

    What is computed with 16-bit floats overflows: for some sentences, Kokoro's published fp16 file gives no number at
    all (NaN in all samples, with ONNX Runtime 1.31 on an ARM processor). The weights are good and stay as they are. It
    takes twice the memory, and no more processor time.
    """
    model = read_file(path)
    graph = model.graph
    for name in list(graph.tensors):
        value = graph.array(name)
        if value is not None and value.dtype == np.float16:
            graph.put(name, value.astype(np.float32))
    for node in graph.nodes:
        _convert(node)
    return write_model(model)


def _convert(node: GraphNode) -> None:
    if node.op == "Cast" and node.integer("to") == _HALF:
        node.attributes = [integer("to", _FLOAT)]
    elif node.op in ("Constant", "ConstantOfShape"):
        value = node.constant()
        if value is not None and value.dtype == np.float16:
            node.attributes = [tensor_attribute("value", value.astype(np.float32))]
