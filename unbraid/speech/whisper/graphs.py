"""Whisper's graphs, rewritten so that quantised files run well on a processor.

ONNX Runtime's dynamic quantisation has one scale for all that a layer reads. Whisper's activations have outliers, so
with the published q8 files a third of what tiny's encoder says is noise (a seventh of base's), a decoder that reads
several tokens at once is five times as far off as one that reads them one by one, and a row's result depends on the
other rows in its batch. The weights are not to blame, and are kept as they are:

- the encoder computes in floats, which takes no longer: most of its time is attention, which is not quantised anyway;
- the decoder's steps use `MatMulNBits`: 8-bit weights with a scale for each block of what is read, row by row;
- the projection to the vocabulary becomes one of these too. It is half of a step otherwise, for the merged file turns
  the whole table of embeddings into floats in each of them;
- the two branches of a merged decoder become graphs of their own, and so do the keys and values of cross-attention,
  which depend on the audio alone.

Files of other kinds (floats, 4 bits) are left alone: each function here returns None then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..onnx.graph import Array, Graph, Model, Node, integer, read_file, write_model

BLOCK = 32
"""How many numbers share a scale, in what the decoder reads."""

_HIDDEN = "encoder_hidden_states"
_CROSS = ".encoder."  # in the names of cross-attention's keys and values


class _Strange(Exception):
    """A quantised graph of a kind that is not known here."""


def float_encoder(path: Path) -> bytes | None:
    """The encoder, computing in floats."""
    return _rewritten(path, lambda model: model, _floats, lambda name: "attentions" not in name)


def cross_graph(path: Path) -> bytes | None:
    """From what the encoder said to the keys and values of cross-attention. `path`: the merged decoder, or the one
    without a past."""
    return _rewritten(path, lambda model: _branch(model, "else_branch"), _cross, lambda name: _CROSS in name)


def prompt_graph(path: Path) -> bytes | None:
    """The decoder without a past. It is the one that masks, so the one for many tokens at once."""
    return _rewritten(path, lambda model: _branch(model, "else_branch"), _blocks, lambda name: _CROSS not in name)


def step_graph(path: Path) -> bytes | None:
    """The decoder with a past. `path`: the merged decoder, or the one with a past."""
    return _rewritten(path, lambda model: _branch(model, "then_branch"), _blocks, lambda name: _CROSS not in name)


def _rewritten(
    path: Path, choose: Callable[[Model], Model], change: Callable[[Graph], None], wanted: Callable[[str], bool]
) -> bytes | None:
    model = choose(read_file(path))
    if not any(node.op in ("MatMulInteger", "ConvInteger") for node in model.graph.nodes):
        return None
    outputs = [name for name in model.graph.outputs if wanted(name)]
    graph = model.graph.pruned(outputs)
    try:
        change(graph)
    except _Strange:
        return None
    model.graph = graph.pruned(outputs)  # without what has no use any more
    model.opsets.setdefault("com.microsoft", 1)
    return write_model(model)


def _branch(model: Model, name: str) -> Model:
    """One branch of a merged decoder as a model; a decoder that is not merged is its own."""
    outer = model.graph
    choice = next((node for node in outer.nodes if node.op == "If" and name in node.graphs()), None)
    if choice is None:
        return model
    inner = choice.graphs()[name]
    around = [node for node in outer.nodes if node is not choice]
    renamed = [
        Node("Identity", [said], [name])
        for said, name in zip(inner.outputs, choice.outputs, strict=True)
        if said != name
    ]
    nodes = [*around, *inner.nodes, *renamed]
    graph = Graph(nodes, {**outer.tensors, **inner.tensors}, dict(outer.inputs), dict(outer.outputs))
    return Model(graph, dict(model.opsets), model.ir_version)


# Floats


def _cross(graph: Graph) -> None:
    """Floats; and the number of rows, for which the keys and values ask what the decoder has read, is asked of what the
    encoder said. Without that they would depend on the whole decoder."""
    _floats(graph)
    indexes = {name: graph.array(name) for name in graph.tensors}
    indexes |= {node.outputs[0]: node.constant() for node in graph.nodes if node.op == "Constant"}
    firsts, others = set(), set()
    for node in graph.nodes:
        index = indexes.get(node.inputs[1]) if node.op == "Gather" else None
        if index is not None and index.size == 1 and not index.item():
            firsts.add(node.inputs[0])
        else:
            others.update(node.inputs)
    for node in graph.nodes:
        if node.op == "Shape" and node.outputs[0] in firsts - others:
            node.inputs = [_HIDDEN]


def _floats(graph: Graph) -> None:
    """Weights as floats, and nothing else quantised."""
    sources = _unquantised(graph)
    for node in graph.nodes:
        if node.op in ("MatMulInteger", "ConvInteger"):
            weights, zero = _weights(graph, node)
            if node.op == "ConvInteger":
                zero = zero.reshape(-1, *[1] * (weights.ndim - 1)) if zero.size > 1 else zero.reshape(())
            name = node.inputs[1] + "_as_floats"
            if name not in graph.tensors:
                graph.put(name, weights.astype(np.float32) - zero.astype(np.float32))
            node.op = node.op.removesuffix("Integer")
            node.inputs = [sources[node.inputs[0]], name]


def _unquantised(graph: Graph) -> dict[str, str]:
    """Take the quantising of activations out. What was quantised, by what it was called then; the scale, by which
    results are multiplied later, becomes 1."""
    sources = {}
    kept = []
    for node in graph.nodes:
        if node.op == "DynamicQuantizeLinear":
            quantised, scale, _ = node.outputs
            sources[quantised] = node.inputs[0]
            graph.put(scale, np.ones((), np.float32))
        else:
            kept.append(node)
    for node in kept:
        reads = [name for name in node.inputs if name in sources]
        if reads and (node.op not in ("MatMulInteger", "ConvInteger") or node.inputs[0] not in sources):
            raise _Strange(node.op)
    graph.nodes = kept
    return sources


def _weights(graph: Graph, node: Node) -> tuple[Array, Array]:
    """The weights of a node, and their zero point."""
    weights = graph.array(node.inputs[1])
    if weights is None:
        raise _Strange(node.inputs[1])
    if len(node.inputs) < 4 or not node.inputs[3]:
        return weights, np.zeros((), weights.dtype)
    zero = graph.array(node.inputs[3])
    if zero is None:
        raise _Strange(node.inputs[3])
    return weights, zero


# Blocks


@dataclass(frozen=True)
class _Table:
    """Weights that are stored as bytes and used as floats."""

    weights: Array
    """(in, out)"""
    scale: Array
    zero: Array


def _blocks(graph: Graph) -> None:
    """All products with 8-bit weights by `MatMulNBits`."""
    sources = _unquantised(graph)
    tables = _tables(graph)
    for node in graph.nodes:
        if node.op == "MatMulInteger":
            weights, zero = _weights(graph, node)
            table = _Table(weights, np.ones((), np.float32), zero)
            _use_blocks(graph, node, sources[node.inputs[0]], table)
        elif node.op == "ConvInteger":
            raise _Strange(node.op)
        elif node.op == "MatMul" and node.inputs[1] in tables:
            _use_blocks(graph, node, node.inputs[0], tables[node.inputs[1]])


def _tables(graph: Graph) -> dict[str, _Table]:
    """What `DequantizeLinear` makes of weights, or of transposed ones, by its name."""
    stored = {name: name for name in graph.tensors}
    turned = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.op == "Transpose"}
    tables = {}
    for node in graph.nodes:
        if node.op != "DequantizeLinear" or len(node.inputs) != 3:
            continue
        source = node.inputs[0]
        weights = graph.array(stored.get(source) or turned.get(source, ""))
        scale, zero = graph.array(node.inputs[1]), graph.array(node.inputs[2])
        if weights is not None and weights.ndim == 2 and scale is not None and zero is not None and scale.size == 1:
            tables[node.outputs[0]] = _Table(weights if source in stored else weights.T, scale, zero)
    return tables


def _use_blocks(graph: Graph, node: Node, source: str, table: _Table) -> None:
    size, wide = table.weights.shape
    if size % BLOCK or table.weights.dtype not in (np.int8, np.uint8):
        raise _Strange(node.inputs[1])
    blocks = size // BLOCK
    name = node.inputs[1]
    if name + "_blocks" not in graph.tensors:
        signed = table.weights.dtype == np.int8
        weights = np.ascontiguousarray(table.weights.T).view(np.uint8)
        zero = np.broadcast_to(table.zero.reshape(-1, 1).view(np.uint8), (wide, blocks))
        if signed:  # from -128…127 to 0…255
            weights, zero = weights ^ np.uint8(0x80), zero ^ np.uint8(0x80)
        graph.put(name + "_blocks", weights.reshape(wide, blocks, BLOCK))
        graph.put(name + "_scales", np.full(wide * blocks, table.scale.item(), np.float32))
        graph.put(name + "_zeros", np.ascontiguousarray(zero))
    node.op, node.domain = "MatMulNBits", "com.microsoft"
    node.inputs = [source, name + "_blocks", name + "_scales", name + "_zeros"]
    numbers = {"K": size, "N": wide, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
    node.attributes = [integer(key, value) for key, value in numbers.items()]
