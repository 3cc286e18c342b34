"""One Whisper's weights in the forms that others run: whisper.cpp's, with 16 or 8 bits a number, and CTranslate2's.

    python bench/transcribe_weights.py f16 GGML FILE FOLDER            # of our files, in the folder
    python bench/transcribe_weights.py q8 GGML FILE
    python bench/transcribe_weights.py ctranslate2 GGML FOLDER TOKENIZER_AND_CONFIGS
    python bench/transcribe_weights.py onnx GGML FOLDER OUR_FILES       # the weights of GGML in graphs of floats

`f16` takes the weights of our own files, in which a number has 8 bits. GGML is any file of a multilingual Whisper of
whisper.cpp's: `f16` takes the vocabulary and the mel filters from it, the others all of it.
"""

from __future__ import annotations

import importlib
import json
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_MAGIC = 0x67676D6C
_SIZES = ("vocabulary", "audio_context", "width", "encoder_heads", "encoder_layers", "text_context")
_MORE_SIZES = ("text_width", "decoder_heads", "decoder_layers", "bins", "kind")
_TYPES: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}  # of tensors, by ggml's numbers
_Q8_TENSOR, _Q8_FILE = 8, 2007  # a tensor of 8 bits; a file of them, in the second version of that form
_BLOCK = 32  # numbers that share a scale
_FLOATS = ("encoder.positional_embedding", "decoder.positional_embedding", "encoder.conv1.bias", "encoder.conv2.bias")


@dataclass(frozen=True)
class Tensor:
    """Weights, in the order of axes that numpy and PyTorch have."""

    name: str
    values: NDArray[Any]


@dataclass(frozen=True)
class Ggml:
    """A file of whisper.cpp."""

    sizes: dict[str, int]
    before: bytes
    """The mel filters and the vocabulary, as they stand between sizes and weights."""
    tensors: dict[str, Tensor]


def read(path: Path) -> Ggml:
    with path.open("rb") as file:
        magic, *numbers = struct.unpack("<I11i", file.read(48))
        if magic != _MAGIC:
            raise SystemExit(f"{path} is no file of whisper.cpp")
        sizes = dict(zip((*_SIZES, *_MORE_SIZES), numbers, strict=True))
        start = file.tell()
        bins, frequencies = struct.unpack("<2i", file.read(8))
        file.seek(bins * frequencies * 4, 1)
        for _ in range(_number(file)):
            file.seek(_number(file), 1)
        length = file.tell() - start
        file.seek(start)
        before = file.read(length)
        return Ggml(sizes, before, {tensor.name: tensor for tensor in _tensors(file)})


def _number(file: BinaryIO) -> int:
    return int.from_bytes(file.read(4), "little")


def _tensors(file: BinaryIO) -> Iterator[Tensor]:
    while head := file.read(12):
        axes, length, kind = struct.unpack("<3i", head)
        shape = struct.unpack(f"<{axes}i", file.read(4 * axes))[::-1]
        name = file.read(length).decode()
        size = int(np.prod(shape)) * _TYPES[kind].itemsize
        yield Tensor(name, np.frombuffer(file.read(size), _TYPES[kind]).reshape(shape))


# --- Of our files ----------------------------------------------------------------------------------------------------

_PARTS = {
    "self_attn": "attn",
    "encoder_attn": "cross_attn",
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "final_layer_norm": "mlp_ln",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
    "layers": "blocks",
}
"""OpenAI's names of what the hub calls otherwise."""
_WHOLE = {
    "embed_positions.weight": "positional_embedding",
    "embed_tokens.weight": "token_embedding.weight",
    "encoder.layer_norm": "encoder.ln_post",
    "decoder.layer_norm": "decoder.ln",
}


def read_onnx(files: Any) -> dict[str, NDArray[Any]]:
    """The weights of an ONNX export with 8 bits a number, as floats, by OpenAI's names."""
    from unbraid.speech.onnx.graph import read_file
    from unbraid.speech.whisper.graphs import _branch

    graphs = ("encoder.", read_file(files.encoder).graph), ("", _branch(read_file(files.decoder), "else_branch").graph)
    found = ((_named(part + name), values) for part, graph in graphs for name, values in _dequantised(graph))
    # What has a slash in its name is no weight.
    return {name: values for name, values in found if name.startswith(("encoder.", "decoder.")) and "/" not in name}


def of_onnx(folder: Path, like: Ggml) -> Ggml:
    """The same in a file like `like`."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from unbraid.speech.whisper.files import resolve_whisper

    files = resolve_whisper(folder)
    config = files.config
    sizes = like.sizes | {
        "width": config["d_model"],
        "encoder_heads": config["encoder_attention_heads"],
        "encoder_layers": config["encoder_layers"],
        "text_width": config["d_model"],
        "decoder_heads": config["decoder_attention_heads"],
        "decoder_layers": config["decoder_layers"],
        "kind": 1,
    }
    tensors: dict[str, Tensor] = {}
    for name, values in read_onnx(files).items():
        floats = values.ndim < 2 or name in _FLOATS
        shaped = values[:, None] if name in ("encoder.conv1.bias", "encoder.conv2.bias") else values
        tensors[name] = Tensor(name, np.ascontiguousarray(shaped.astype("<f4" if floats else "<f2")))
    return Ggml(sizes, like.before, tensors)


def _dequantised(graph: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """All weights by the names that they have in PyTorch; those of products are named by where they are used."""
    for name in graph.tensors:
        plain, _, kind = name.replace("_merged_0", "").rpartition("_")
        if kind == "quantized" and not plain.startswith("onnx::"):
            yield plain, _floats(graph, name)
        elif kind not in ("quantized", "scale", "point") and (values := graph.array(name)) is not None:
            yield name.replace("_merged_0", ""), values
    for node in graph.nodes:
        if node.op == "MatMulInteger" and node.inputs[1].startswith("onnx::"):
            place = node.outputs[0].partition("/MatMul_output")[0].strip("/").replace("/", ".")
            yield f"{place}.weight", _floats(graph, node.inputs[1]).T


def _floats(graph: Any, name: str) -> NDArray[np.float32]:
    of = name.removesuffix("_quantized")
    values, scale, zero = (graph.array(one) for one in (name, f"{of}_scale", f"{of}_zero_point"))
    along = (-1, *[1] * (values.ndim - 1)) if values.ndim > 2 else (-1,)  # a convolution's output channels come first
    found: NDArray[np.float32] = values.astype(np.float32) - zero.astype(np.float32).reshape(along)
    found *= scale.astype(np.float32).reshape(along)
    return found


def _named(name: str) -> str:
    name = name.removeprefix("model.")
    for theirs, ours in _WHOLE.items():
        if name.startswith(theirs) or name.endswith(theirs):
            name = name.replace(theirs, ours)
    return ".".join(_PARTS.get(part, part) for part in name.split("."))


def write_f16(source: Ggml, path: Path) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<I11i", _MAGIC, *source.sizes.values()) + source.before)
        for tensor in source.tensors.values():
            _write(file, tensor, next(kind for kind, dtype in _TYPES.items() if dtype == tensor.values.dtype))


def _write(file: BinaryIO, tensor: Tensor, kind: int, data: bytes | None = None) -> None:
    name, values = tensor.name.encode(), tensor.values
    file.write(struct.pack(f"<3i{values.ndim}i", values.ndim, len(name), kind, *values.shape[::-1]) + name)
    file.write(values.tobytes() if data is None else data)


# --- For the others --------------------------------------------------------------------------------------------------


def write_q8(source: Ggml, path: Path) -> None:
    """The same with 8 bits a number, as whisper.cpp's own `quantize` makes it: matrices alone, in blocks of 32."""
    sizes = list((source.sizes | {"kind": _Q8_FILE}).values())
    with path.open("wb") as file:
        file.write(struct.pack("<I11i", _MAGIC, *sizes) + source.before)
        for tensor in source.tensors.values():
            if tensor.values.ndim == 2 and tensor.name not in _FLOATS:
                _write(file, tensor, _Q8_TENSOR, _blocks(tensor.values))
            else:
                _write(file, tensor, next(kind for kind, dtype in _TYPES.items() if dtype == tensor.values.dtype))


def _blocks(values: NDArray[Any]) -> bytes:
    rows = values.astype(np.float32).reshape(-1, _BLOCK)
    scales = np.abs(rows).max(axis=1) / np.float32(127)
    inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    blocks = np.empty(len(rows), np.dtype([("scale", "<f2"), ("values", "i1", _BLOCK)]))
    blocks["scale"] = scales
    blocks["values"] = np.rint(rows * inverse[:, None])
    return blocks.tobytes()


def write_ctranslate2(source: Ggml, folder: Path, beside: Path) -> None:
    """A folder that faster-whisper takes, of floats: CTranslate2 makes 8 bits of them when it loads them, if asked to.

    beside: where the model's `tokenizer.json` and its configurations are.
    """
    specs: Any = importlib.import_module("ctranslate2.specs")
    sizes = source.sizes
    spec = specs.WhisperSpec(
        sizes["encoder_layers"], sizes["encoder_heads"], sizes["decoder_layers"], sizes["decoder_heads"]
    )
    weights = _Weights(source)
    for conv in ("conv1", "conv2"):
        weights.put(getattr(spec.encoder, conv), f"encoder.{conv}")
    for part, name, norm in ((spec.encoder, "encoder", "ln_post"), (spec.decoder, "decoder", "ln")):
        part.position_encodings.encodings = weights[f"{name}.positional_embedding"]
        weights.put_norm(part.layer_norm, f"{name}.{norm}")
        for number, layer in enumerate(part.layer):
            weights.put_layer(layer, f"{name}.blocks.{number}", crosses=name == "decoder")
    spec.decoder.scale_embeddings = False
    spec.decoder.embeddings.weight = weights["decoder.token_embedding.weight"]
    spec.decoder.projection.weight = weights["decoder.token_embedding.weight"]

    said = json.loads((beside / "generation_config.json").read_text("utf-8"))
    spec.config.suppress_ids = said["suppress_tokens"]
    spec.config.suppress_ids_begin = said["begin_suppress_tokens"]
    spec.config.lang_ids = sorted(said["lang_to_id"].values())
    spec.config.alignment_heads = said["alignment_heads"]
    spec.register_vocabulary(_vocabulary(beside / "tokenizer.json", sizes["vocabulary"]))
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir()
    spec.save(str(folder))
    for name in ("tokenizer.json", "preprocessor_config.json"):
        shutil.copy(beside / name, folder)


def write_onnx(source: Ggml, folder: Path, beside: Path) -> None:
    """A folder that unbraid takes: our graphs with these weights, in floats.

    beside: our files of 8 bits for the same model.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from unbraid.speech.onnx.graph import read_file, write_model
    from unbraid.speech.whisper.files import resolve_whisper
    from unbraid.speech.whisper.graphs import _branch, _floats

    files = resolve_whisper(beside)
    encoder, decoder = read_file(files.encoder), read_file(files.decoder)
    folder.mkdir()
    for name, model, part in (
        ("encoder_model", encoder, "encoder."),
        ("decoder_model", _branch(decoder, "else_branch"), ""),
        ("decoder_with_past_model", _branch(decoder, "then_branch"), ""),
    ):
        with_past = name == "decoder_with_past_model"
        wanted = [one for one in model.graph.outputs if not (with_past and ".encoder." in one)]
        graph = model.graph.pruned(wanted)
        _floats(graph)
        _publish(graph, source, part)
        model.graph = graph.pruned(wanted)
        (folder / f"{name}.onnx").write_bytes(write_model(model))
    for path in (files.tokenizer, *files.folder.glob("*config.json")):
        shutil.copy(path, folder)


def _publish(graph: Any, source: Ggml, part: str) -> None:
    """Put weights in the place of those that were rounded. What is multiplied by their scales later stays."""
    for node in graph.nodes:
        rounded = node.inputs[1].removesuffix("_as_floats") if len(node.inputs) > 1 else ""
        if node.op in ("MatMul", "Conv") and rounded != node.inputs[1]:
            place = node.outputs[0].partition(f"/{node.op}_output")[0].strip("/").replace("/", ".")
            values = source.tensors[_named(f"{part}{place}.weight")].values.astype(np.float32)
            values = values.T if node.op == "MatMul" else values
            scale = graph.array(rounded.removesuffix("_quantized") + "_scale").astype(np.float32)
            along = (-1, *[1] * (values.ndim - 1)) if node.op == "Conv" else (-1,)
            graph.put(node.inputs[1], np.ascontiguousarray(values / scale.reshape(along)))
        elif node.op == "DequantizeLinear":
            node.op, node.inputs = "Identity", node.inputs[:1]
    embeddings = source.tensors["decoder.token_embedding.weight"].values.astype(np.float32)
    for name in [name for name in graph.tensors if "embed_tokens" in name and name.endswith("_quantized")]:
        graph.put(name, embeddings)


class _Weights:
    """A model's weights, by OpenAI's names, put into CTranslate2's layers."""

    def __init__(self, source: Ggml) -> None:
        self._tensors = source.tensors

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._tensors[name].values.astype(np.float32)

    def put(self, layer: Any, *names: str) -> None:
        """Several names become one layer, one after the other. Keys have no bias."""
        layer.weight = np.concatenate([self[f"{name}.weight"] for name in names])
        layer.bias = np.concatenate([self._bias(name) for name in names])

    def _bias(self, name: str) -> NDArray[np.float32]:
        if f"{name}.bias" in self._tensors:
            return self[f"{name}.bias"].reshape(-1)
        return np.zeros(len(self[f"{name}.weight"]), np.float32)

    def put_norm(self, layer: Any, name: str) -> None:
        layer.gamma, layer.beta = self[f"{name}.weight"], self[f"{name}.bias"]

    def put_layer(self, layer: Any, name: str, *, crosses: bool) -> None:
        own, cross = f"{name}.attn", f"{name}.cross_attn"
        self.put(layer.self_attention.linear[0], f"{own}.query", f"{own}.key", f"{own}.value")
        self.put(layer.self_attention.linear[1], f"{own}.out")
        self.put_norm(layer.self_attention.layer_norm, f"{own}_ln")
        if crosses:
            self.put(layer.attention.linear[0], f"{cross}.query")
            self.put(layer.attention.linear[1], f"{cross}.key", f"{cross}.value")
            self.put(layer.attention.linear[2], f"{cross}.out")
            self.put_norm(layer.attention.layer_norm, f"{cross}_ln")
        self.put(layer.ffn.linear_0, f"{name}.mlp.0")
        self.put(layer.ffn.linear_1, f"{name}.mlp.2")
        self.put_norm(layer.ffn.layer_norm, f"{name}.mlp_ln")


def _vocabulary(path: Path, size: int) -> list[str]:
    """The tokens as `tokenizer.json` spells them; the times, which it may lack, come after them."""
    told = json.loads(path.read_text("utf-8"))
    known = {number: text for text, number in told["model"]["vocab"].items()}
    known |= {token["id"]: token["content"] for token in told["added_tokens"]}
    first = size - 1501  # from <|0.00|> to <|30.00|>
    return [known.get(number, f"<|{(number - first) * 0.02:.2f}|>") for number in range(size)]


def main() -> None:
    kind, source, target, *more = sys.argv[1:]
    if kind == "f16":
        write_f16(of_onnx(Path(more[0]), read(Path(source))), Path(target))
    elif kind == "q8":
        write_q8(read(Path(source)), Path(target))
    else:
        write = write_onnx if kind == "onnx" else write_ctranslate2
        write(read(Path(source)), Path(target), Path(more[0]))


if __name__ == "__main__":
    main()
