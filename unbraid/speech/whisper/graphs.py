"""Graph rewriting: quantised Whisper files made accurate and fast on a processor.

ONNX Runtime's dynamic quantisation uses one scale for the whole input of a layer. Whisper's activations have outliers,
so the published q8 files lose a lot: a third of the output of tiny's encoder is noise (a seventh of base's), a decoder
that reads several tokens at once errs five times as much as one that reads them one by one, and a row's result depends
on the other rows of its batch. The weights are good and stay as they are. What changes:

- The encoder computes in floats. That takes no longer: most of its time is attention, which is not quantised anyway.
- It reads any number of columns: the table of positions is cut to what there is. Its attention is computed in blocks
  (`MultiHeadAttention`): the scores of thirty seconds alone would take 54 MB with tiny, 72 MB with base.
- The decoder uses `MatMulNBits`: 8-bit weights, with a scale for each block of the activations, row by row.
- So does the projection to the vocabulary. In the merged file it is half of a step, because the whole embedding table
  is dequantised in each step.
- The decoder with a past gets a causal mask, so that it reads several tokens at once: the forced prefix, a prompt.
- Its cross-attention has one set of keys and values for all rows of a recording, so that beams do not read a copy each.
- The two branches of a merged decoder become separate graphs, and so do the keys and values of cross-attention, which
  depend on the audio alone.

The embeddings of tokens stay in the published file, which ONNX Runtime maps: a step reads a row of them for each token.
Other files (floats, 4 bits) are left alone: each function here returns None for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..onnx.graph import Array, Graph, GraphNode, OnnxModel, integer, read_file, tensor_input, write_model

BLOCK = 32
"""How many numbers share a scale."""

CAUSAL_MASK = "causal_mask"
"""The input of a rewritten step graph that is added to the scores of self-attention: (1, tokens, all tokens)."""

SHARED_AUDIO = "shared_audio"
"""The input of a rewritten step graph that has the shape of all tokens by recordings: (recordings, -1, width)."""

POSITIONS = "positions"
"""The input of a rewritten encoder that says how many positions it reads: (1,), half of the columns."""

_HIDDEN = "encoder_hidden_states"
_POSITION_TABLE = "embed_positions.weight"
_OWN_KEYS = ".decoder.key"  # in the names of self-attention's keys
_CROSS = ".encoder."  # in the names of cross-attention's keys and values
_CROSS_VALUES = ".encoder.value"


class _UnknownPattern(Exception):
    """A quantised graph with operations that this module cannot rewrite."""


def float_encoder(path: Path) -> bytes | None:
    """The encoder, computing in floats, for any number of columns."""
    return _rewritten(path, lambda model: model, _encoder, lambda name: "attentions" not in name)


def cross_graph(path: Path) -> bytes | None:
    """The keys and values of cross-attention from the encoder's output. `path`: the merged decoder, or the one without
    a past."""
    return _rewritten(path, lambda model: _branch(model, "else_branch"), _cross, lambda name: _CROSS in name)


def prompt_graph(path: Path) -> bytes | None:
    """The decoder without a past. Only it has a causal mask, so only it reads many tokens at once."""
    return _rewritten(path, lambda model: _branch(model, "else_branch"), _blocks, lambda name: _CROSS not in name)


def step_graph(path: Path) -> bytes | None:
    """The decoder with a past. `path`: the merged decoder, or the one with a past."""
    return _rewritten(path, lambda model: _branch(model, "then_branch"), _steps, lambda name: _CROSS not in name)


def _rewritten(
    path: Path, choose: Callable[[OnnxModel], OnnxModel], change: Callable[[Graph], None], wanted: Callable[[str], bool]
) -> bytes | None:
    model = choose(read_file(path))
    if not any(node.op in ("MatMulInteger", "ConvInteger") for node in model.graph.nodes):
        return None
    outputs = [name for name in model.graph.outputs if wanted(name)]
    graph = model.graph.pruned(outputs)
    try:
        change(graph)
    except _UnknownPattern:
        return None
    model.graph = graph.pruned(outputs)  # again: the change left nodes that nothing reads
    model.opsets.setdefault("com.microsoft", 1)
    return write_model(model, path.resolve().name)


def _branch(model: OnnxModel, name: str) -> OnnxModel:
    """One branch of a merged decoder as a model. A decoder that is not merged is returned as it is."""
    outer = model.graph
    choice = next((node for node in outer.nodes if node.op == "If" and name in node.graphs()), None)
    if choice is None:
        return model
    inner = choice.graphs()[name]
    around = [node for node in outer.nodes if node is not choice]
    renamed = [
        GraphNode("Identity", [inside], [name])
        for inside, name in zip(inner.outputs, choice.outputs, strict=True)
        if inside != name
    ]
    nodes = [*around, *inner.nodes, *renamed]
    graph = Graph(nodes, {**outer.tensors, **inner.tensors}, dict(outer.inputs), dict(outer.outputs))
    return OnnxModel(graph, dict(model.opsets), model.ir_version, model.mapped)


# Floats


def _encoder(graph: Graph) -> None:
    """Floats, attention in blocks, and positions for as many columns as there are. A graph in which their table is not
    found reads 3,000."""
    _floats(graph)
    _fuse_attention(graph)
    table = next((name for name in graph.tensors if name.endswith(_POSITION_TABLE)), "")
    adds = next((node for node in graph.nodes if node.op == "Add" and table in node.inputs), None)
    if adds is None:
        return
    first, cut = graph.put("positions_first", np.zeros(1, np.int64)), table + "_cut"
    graph.nodes.insert(graph.nodes.index(adds), GraphNode("Slice", [table, first, POSITIONS], [cut]))
    adds.inputs = [cut if name == table else name for name in adds.inputs]
    graph.inputs[POSITIONS] = tensor_input(POSITIONS, 1, np.int64)


def _fuse_attention(graph: Graph) -> None:
    """Put `MultiHeadAttention` in the place of the operations that attention was exported as. A layer in which they
    are not found stays as it is."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    read_by = {name: node for node in graph.nodes if node.op != "Shape" for name in node.inputs}
    for softmax in [node for node in graph.nodes if node.op == "Softmax"]:
        scores = made_by.get(softmax.inputs[0])
        product = read_by.get(_moved(softmax, read_by).outputs[0])
        if scores is None or product is None or not scores.op == product.op == "MatMul":
            continue
        scaled = made_by.get(_origin(scores.inputs[0], made_by))
        if scaled is None or scaled.op != "Mul":
            continue
        queries, scale = scaled.inputs
        keys, values = _origin(scores.inputs[1], made_by), _origin(product.inputs[1], made_by)
        result = _moved(product, read_by)
        heads = _heads(graph, made_by, scale, read_by.get(result.outputs[0]))
        if heads and result is not product:
            result.op, result.domain = "MultiHeadAttention", "com.microsoft"
            result.inputs, result.attributes = [queries, keys, values], [integer("num_heads", heads)]


def _heads(graph: Graph, made_by: Mapping[str, GraphNode], scale: str, projection: GraphNode | None) -> int:
    """How many heads there are, by the factor of the queries, the root of a head's width, and what the results are
    multiplied with; 0 if that cannot be seen."""
    factor = made_by[scale].constant() if scale in made_by else graph.array(scale)
    weights = graph.array(projection.inputs[1]) if projection is not None and projection.op == "MatMul" else None
    if factor is None or factor.size != 1 or weights is None or not 0 < factor.item() < 1:
        return 0
    width: int = round(factor.item() ** -2)
    return len(weights) // width


def _origin(name: str, made_by: Mapping[str, GraphNode]) -> str:
    """What a value was before it was given other shapes."""
    while name in made_by and made_by[name].op in ("Reshape", "Transpose"):
        name = made_by[name].inputs[0]
    return name


def _moved(node: GraphNode, read_by: Mapping[str, GraphNode]) -> GraphNode:
    """The last of the nodes that give other shapes to the result of `node`."""
    while (reader := read_by.get(node.outputs[0])) is not None and reader.op in ("Reshape", "Transpose"):
        node = reader
    return node


def _cross(graph: Graph) -> None:
    """Floats, and the batch size taken from the encoder's output. The published graph takes it from the decoder's
    tokens, so that the keys and values would depend on the whole decoder."""
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
    """Dequantise the weights, and compute in floats."""
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
    """Remove the quantisation of activations. Returns the name of each float input by the name of its quantised form.
    The scale, by which results are multiplied later, becomes 1."""
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
            raise _UnknownPattern(node.op)
    graph.nodes = kept
    return sources


def _weights(graph: Graph, node: GraphNode) -> tuple[Array, Array]:
    """The weights of a node and their zero point."""
    weights = graph.array(node.inputs[1])
    if weights is None:
        raise _UnknownPattern(node.inputs[1])
    if len(node.inputs) < 4 or not node.inputs[3]:
        return weights, np.zeros((), weights.dtype)
    zero = graph.array(node.inputs[3])
    if zero is None:
        raise _UnknownPattern(node.inputs[3])
    return weights, zero


# Blocks


@dataclass(frozen=True)
class _Table:
    """Quantised weights, and how to dequantise them."""

    weights: Array
    """(in, out)"""
    scale: Array
    zero: Array


def _blocks(graph: Graph) -> None:
    """Replace all products with 8-bit weights by `MatMulNBits`."""
    sources = _unquantised(graph)
    tables = _tables(graph)
    for node in graph.nodes:
        if node.op == "MatMulInteger":
            weights, zero = _weights(graph, node)
            table = _Table(weights, np.ones((), np.float32), zero)
            _use_blocks(graph, node, sources[node.inputs[0]], table)
        elif node.op == "ConvInteger":
            raise _UnknownPattern(node.op)
        elif node.op == "MatMul" and node.inputs[1] in tables:
            _use_blocks(graph, node, node.inputs[0], tables[node.inputs[1]])


def _tables(graph: Graph) -> dict[str, _Table]:
    """The weights that `DequantizeLinear` turns into floats, transposed or not, by the name of its output."""
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


def _use_blocks(graph: Graph, node: GraphNode, source: str, table: _Table) -> None:
    size, wide = table.weights.shape
    if size % BLOCK or table.weights.dtype not in (np.int8, np.uint8):
        raise _UnknownPattern(node.inputs[1])
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


# The causal mask


def _steps(graph: Graph) -> None:
    _blocks(graph)
    _add_causal_mask(graph)
    _share_audio(graph)


def _add_causal_mask(graph: Graph) -> None:
    """Add an input to the scores of self-attention in each layer. A graph in which they are not all found stays as it
    is: it reads one token at a time."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    layers = sum(name.startswith("past_") and name.endswith(_OWN_KEYS) for name in graph.inputs)
    softmaxes = [node for node in graph.nodes if node.op == "Softmax" and _is_self_attention(node, made_by)]
    if not layers or len(softmaxes) != layers:
        return
    for node in softmaxes:
        masked = node.inputs[0] + "_masked"
        graph.nodes.insert(graph.nodes.index(node), GraphNode("Add", [node.inputs[0], CAUSAL_MASK], [masked]))
        node.inputs = [masked]
    graph.inputs[CAUSAL_MASK] = tensor_input(CAUSAL_MASK, 3)


def _is_self_attention(softmax: GraphNode, made_by: Mapping[str, GraphNode]) -> bool:
    """Whether the scores are a product with the keys of the past and the present tokens, and nothing was added."""
    product = made_by.get(softmax.inputs[0])
    if product is None or product.op != "MatMul":
        return False
    node = made_by.get(product.inputs[1])
    while node is not None and node.op in ("Transpose", "Reshape"):
        node = made_by.get(node.inputs[0])
    return node is not None and node.op == "Concat" and any(name.endswith(_OWN_KEYS) for name in node.inputs)


# Cross-attention


def _share_audio(graph: Graph) -> None:
    """Let the rows of a recording share its keys and values. Cross-attention has no order, so that rows that lie side
    by side can be further tokens of one row. A graph in which it is not found in each layer stays as it is."""
    values = [name for name in graph.inputs if name.startswith("past_") and name.endswith(_CROSS_VALUES)]
    layers = [layer for layer in (_cross_attention(graph, name) for name in values) if layer is not None]
    if not values or len(layers) != len(values):
        return
    for layer in layers:
        layer.share(graph)
    graph.inputs[SHARED_AUDIO] = tensor_input(SHARED_AUDIO, 1, np.int64)


@dataclass(frozen=True)
class _CrossAttention:
    """One layer's, in a graph."""

    source: str
    """What the queries are made of."""
    result: str
    end: GraphNode
    """Adds the result to what was there before."""

    def share(self, graph: Graph) -> None:
        shared, apart, shape = self.source + "_shared", self.result + "_apart", self.result + "_shape"
        readers = [node for node in graph.nodes if self.source in node.inputs]
        graph.nodes.insert(graph.nodes.index(readers[0]), GraphNode("Reshape", [self.source, SHARED_AUDIO], [shared]))
        for node in readers:
            node.inputs = [shared if name == self.source else name for name in node.inputs]
        [before] = [name for name in self.end.inputs if name != self.result]
        at = graph.nodes.index(self.end)
        graph.nodes[at:at] = [
            GraphNode("Shape", [before], [shape]),
            GraphNode("Reshape", [self.result, shape], [apart]),
        ]
        self.end.inputs = [before, apart]


def _cross_attention(graph: Graph, values: str) -> _CrossAttention | None:
    """The cross-attention with these values: from them forward to where it ends, and from their product back to where
    it begins."""
    made_by = {name: node for node in graph.nodes if node.op != "Constant" for name in node.outputs}
    read_by = {name: node for node in reversed(graph.nodes) if node.op != "Shape" for name in node.inputs}
    product: GraphNode | None = None
    result, end = values, read_by.get(values)
    while end is not None and not (end.op == "Add" and all(name in made_by for name in end.inputs)):
        product = end if product is None and end.op == "MatMul" else product
        result = end.outputs[0]
        end = read_by.get(result)
    start = None if product is None else made_by.get(product.inputs[0])
    while start is not None and start.op != "MatMulNBits":
        start = next((made_by[name] for name in start.inputs if name in made_by), None)
    return None if start is None or end is None else _CrossAttention(start.inputs[0], result, end)
