"""Graphs of half precision made to compute in single precision.

What is computed with 16-bit floats overflows: for some sentences, Kokoro's published fp16 file gives no number at all
(NaN in all samples, with ONNX Runtime 1.31 on an ARM processor). The weights are good and stay as they are; only what
is computed with them changes. It takes twice the memory, and no more processor time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .graph import Node, integer, read_file, tensor_attribute, write_model

_FLOAT, _HALF = 1, 10  # TensorProto.DataType


def in_floats(path: Path) -> bytes:
    """The model in a file, with floats of 32 bits wherever it has those of 16."""
    model = read_file(path)
    graph = model.graph
    for name in list(graph.tensors):
        value = graph.array(name)
        if value is not None and value.dtype == np.float16:
            graph.put(name, value.astype(np.float32))
    for node in graph.nodes:
        _convert(node)
    return write_model(model)


def _convert(node: Node) -> None:
    if node.op == "Cast" and node.integer("to") == _HALF:
        node.attributes = [integer("to", _FLOAT)]
    elif node.op in ("Constant", "ConstantOfShape"):
        value = node.constant()
        if value is not None and value.dtype == np.float16:
            node.attributes = [tensor_attribute("value", value.astype(np.float32))]
