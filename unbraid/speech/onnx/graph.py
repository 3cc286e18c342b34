"""ONNX files, read and written as far as it takes to rewrite a graph.

An ONNX file is one protobuf message. Its library would be one more thing to install, and we change only nodes and
weights; so messages are taken apart by hand here, and what is not understood is passed on as it is.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.errors import ModelError

Raw = bytes | memoryview
Field = tuple[int, int | Raw]
Array = NDArray[Any]

_TYPES = {1: "f4", 2: "u1", 3: "i1", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8"}  # of tensors, little-endian
_NUMBERS = {np.dtype(kind): number for number, kind in _TYPES.items()}


@dataclass(slots=True)
class Node:
    """One operation."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: list[Raw] = field(default_factory=list)
    """Whole messages."""
    domain: str = ""

    def graphs(self) -> dict[str, Graph]:
        """The branches of an `If`, by their names."""
        found = {}
        for attribute in self.attributes:
            parts = dict(fields(attribute))
            if 6 in parts:
                found[_text(parts[1])] = read_graph(_raw(parts[6]))
        return found

    def constant(self) -> Array | None:
        """The value of a `Constant`, where it is a tensor."""
        parts = dict(fields(self.attributes[0])) if self.attributes else {}
        return read_array(_raw(parts[5])) if 5 in parts else None


@dataclass(slots=True)
class Graph:
    """Nodes in an order in which they can be run, and what they read and give."""

    nodes: list[Node]
    tensors: dict[str, Raw]
    """Weights, as whole messages."""
    inputs: dict[str, Raw]
    outputs: dict[str, Raw]

    def array(self, name: str) -> Array | None:
        """A weight; None if there is none of that name, or if it lies in another file."""
        return read_array(self.tensors[name]) if name in self.tensors else None

    def put(self, name: str, value: Array) -> str:
        """Add a weight, and say its name."""
        self.tensors[name] = write_array(name, value)
        return name

    def pruned(self, outputs: Iterable[str]) -> Graph:
        """What it takes to compute `outputs`."""
        kept = {name: self.outputs[name] for name in outputs}
        needed = set(kept)
        nodes = []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                nodes.append(node)
                needed.update(_read_by(node))
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in needed}
        inputs = {name: value for name, value in self.inputs.items() if name in needed and name not in tensors}
        return Graph(nodes[::-1], tensors, inputs, kept)


@dataclass(slots=True)
class Model:
    """A graph, and the versions of the operations in it."""

    graph: Graph
    opsets: dict[str, int]
    ir_version: int


def _read_by(node: Node) -> Iterator[str]:
    yield from node.inputs
    for graph in node.graphs().values():  # branches read what is around them, too
        for inner in graph.nodes:
            yield from _read_by(inner)
        yield from graph.outputs


def read_file(path: Path) -> Model:
    """The graph of a file. Its weights stay in the file until they are used. Raises `ModelError`."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ModelError(f"{path} is empty: download it again") from error
    try:
        return read_model(memoryview(data))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def read_model(data: Raw) -> Model:
    """The graph of a file's bytes. Raises `ModelError`."""
    graph: Graph | None = None
    opsets: dict[str, int] = {}
    ir_version = 8
    try:
        for number, value in fields(data):
            if number == 1:
                ir_version = _number(value)
            elif number == 7:
                graph = read_graph(_raw(value))
            elif number == 8:
                parts = dict(fields(_raw(value)))
                opsets[_text(parts.get(1, b""))] = _number(parts.get(2, 1))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ModelError(f"the file is not an ONNX model, or damaged ({error!r})") from error
    if graph is None:
        raise ModelError("the file is not an ONNX model: there is no graph in it")
    return Model(graph, opsets, ir_version)


def write_model(model: Model) -> bytes:
    """A file that `read_model` reads, and ONNX Runtime."""
    graph = _graph_pieces(model.graph)
    size = sum(len(piece) for piece in graph)
    opsets = [(8, join([(1, domain.encode()), (2, version)])) for domain, version in model.opsets.items()]
    # The graph is most of it: copied once, here.
    return b"".join([join([(1, model.ir_version), *opsets]), _as_varint(7 << 3 | 2), _as_varint(size), *graph])


def read_graph(data: Raw) -> Graph:
    """One graph, of a model or of a branch. Types of what lies between the nodes are dropped: they may change."""
    graph = Graph([], {}, {}, {})
    for number, value in fields(data):
        if number == 1:
            graph.nodes.append(_read_node(_raw(value)))
        elif number == 5:
            graph.tensors[_name(_raw(value), 8)] = _raw(value)
        elif number == 11:
            graph.inputs[_name(_raw(value), 1)] = _raw(value)
        elif number == 12:
            graph.outputs[_name(_raw(value), 1)] = _raw(value)
    return graph


def _graph_pieces(graph: Graph) -> list[Raw]:
    parts: list[Field] = [(1, _write_node(node)) for node in graph.nodes]
    parts.append((2, b"graph"))
    parts.extend((5, tensor) for tensor in graph.tensors.values())
    parts.extend((11, value) for value in graph.inputs.values())
    parts.extend((12, value) for value in graph.outputs.values())
    return pieces(parts)


def _read_node(data: Raw) -> Node:
    node = Node("", [], [])
    for number, value in fields(data):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 4:
            node.op = _text(value)
        elif number == 5:
            node.attributes.append(_raw(value))
        elif number == 7:
            node.domain = _text(value)
    return node


def _write_node(node: Node) -> bytes:
    parts: list[Field] = [(1, name.encode()) for name in node.inputs]
    parts.extend((2, name.encode()) for name in node.outputs)
    parts.append((4, node.op.encode()))
    parts.extend((5, attribute) for attribute in node.attributes)
    if node.domain:
        parts.append((7, node.domain.encode()))
    return join(parts)


def integer(name: str, value: int) -> bytes:
    """An attribute that is a number."""
    return join([(1, name.encode()), (3, value), (20, 2)])


# Tensors


def read_array(tensor: Raw) -> Array | None:
    """A tensor's values; None where they lie in another file."""
    sizes: list[int] = []
    kind, data, values = 0, None, None
    for number, value in fields(tensor):
        if number == 1:
            sizes.extend([value] if isinstance(value, int) else _numbers(value))
        elif number == 2:
            kind = _number(value)
        elif number == 4 and not isinstance(value, int):
            values = np.frombuffer(value, "<f4")
        elif number in (5, 7):
            values = np.array([value] if isinstance(value, int) else list(_numbers(value)))
        elif number == 9:
            data = _raw(value)
        elif number == 14 and value:
            return None
    if kind not in _TYPES:
        return None
    dtype = np.dtype(_TYPES[kind])
    if data is not None:
        return np.frombuffer(data, dtype.newbyteorder("<")).reshape(sizes)
    return np.zeros(sizes, dtype) if values is None else values.astype(dtype).reshape(sizes)


def write_array(name: str, value: Array) -> bytes:
    """A tensor of that name."""
    kind = _NUMBERS[value.dtype]
    raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    sizes: list[Field] = [(1, size) for size in value.shape]
    return join([*sizes, (2, kind), (8, name.encode()), (9, raw)])


# Protobuf


def fields(data: Raw) -> Iterator[Field]:
    """The fields of a message, by their numbers. Nothing is copied."""
    view = memoryview(data)
    at, end = 0, len(view)
    while at < end:
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(view, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(view, at)
        else:
            size = {1: 8, 5: 4}[kind]
        if at + size > end:
            raise IndexError("a field ends after its message")
        yield tag >> 3, view[at : at + size]
        at += size


def join(parts: Iterable[Field]) -> bytes:
    """A message of these fields: numbers, and what has a length."""
    return b"".join(pieces(parts))


def pieces(parts: Iterable[Field]) -> list[Raw]:
    """What `join` joins."""
    written: list[Raw] = []
    for number, value in parts:
        if isinstance(value, int):
            written.append(_as_varint(number << 3) + _as_varint(value))
        else:
            written.append(_as_varint(number << 3 | 2) + _as_varint(len(value)))
            written.append(value)
    return written


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _as_varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _numbers(data: Raw) -> Iterator[int]:
    """Numbers one after the other; negative ones are written as 64 bits."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        value, at = _varint(view, at)
        yield value - (1 << 64) if value >> 63 else value


def _name(data: Raw, wanted: int) -> str:
    return next((_text(value) for number, value in fields(data) if number == wanted), "")


def _raw(value: int | Raw) -> Raw:
    if isinstance(value, int):
        raise TypeError("a number where a message should be")
    return value


def _number(value: int | Raw) -> int:
    if not isinstance(value, int):
        raise TypeError("a message where a number should be")
    return value


def _text(value: int | Raw) -> str:
    return bytes(_raw(value)).decode()
