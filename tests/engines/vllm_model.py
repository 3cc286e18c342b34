"""SmolLM2 as vLLM wants its models: the folder of a Hugging Face checkpoint, made from the GGUF file that we have."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from unbraid.models import Gguf
from unbraid.models.cache import keep

from ..support.embedded_model import smollm2

_CONTROL = 3  # the type of tokens that are no text
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def checkpoint() -> Path:
    """The folder, made once and kept beside the GGUF file; skips the test where that cannot be had."""
    pytest.importorskip("gguf", reason="weights are read by the gguf package: scripts/install-vllm")
    pytest.importorskip("safetensors", reason="weights are written by safetensors: scripts/install-vllm")
    source = smollm2().gguf
    return keep(source.with_name(f"{source.stem}-checkpoint"), lambda place: convert(source, place))


def convert(source: Path, place: Path) -> None:
    """Make the checkpoint `place` of a GGUF file of the architecture `llama` with a byte-level vocabulary."""
    gguf = Gguf(source)
    place.mkdir()
    tensors = _tensors(gguf)
    for name, value in (
        ("config.json", _config(gguf, tied="lm_head.weight" not in tensors)),
        ("generation_config.json", {"bos_token_id": _id(gguf, "bos"), "eos_token_id": _id(gguf, "eos")}),
        ("tokenizer.json", _tokenizer(gguf)),
        ("tokenizer_config.json", _tokenizer_config(gguf)),
    ):
        (place / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    save = importlib.import_module("safetensors.numpy").save_file
    save(tensors, place / "model.safetensors", metadata={"format": "pt"})


def _config(gguf: Gguf, tied: bool) -> dict[str, Any]:
    heads = gguf["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": gguf["llama.embedding_length"],
        "intermediate_size": gguf["llama.feed_forward_length"],
        "num_hidden_layers": gguf["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": gguf["llama.attention.head_count_kv"],
        "head_dim": gguf["llama.embedding_length"] // heads,
        "max_position_embeddings": gguf["llama.context_length"],
        "rms_norm_eps": gguf["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": gguf["llama.rope.freq_base"],
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "vocab_size": len(gguf["tokenizer.ggml.tokens"]),
        "bos_token_id": _id(gguf, "bos"),
        "eos_token_id": _id(gguf, "eos"),
        "torch_dtype": "float16",
    }


def _tensors(gguf: Gguf) -> dict[str, Any]:
    """The weights by their other names, unpacked. Half precision is more than the quantised ones have."""
    library, quants = importlib.import_module("gguf"), importlib.import_module("gguf.quants")
    heads = {"attn_q": gguf["llama.attention.head_count"], "attn_k": gguf["llama.attention.head_count_kv"]}
    found: dict[str, Any] = {}
    for tensor in library.GGUFReader(gguf.path).tensors:
        *block, name, kind = tensor.name.split(".")
        if name not in _NAMES:
            continue  # rope_freqs and its like are worked out anew
        value = quants.dequantize(tensor.data, tensor.tensor_type)
        if name in heads:
            value = _unpermuted(value, heads[name])
        layer = f"model.layers.{block[1]}." if block else ""
        found[f"{layer}{_NAMES[name]}.{kind}"] = value.astype("float16")
    return found


def _unpermuted(value: Any, heads: int) -> Any:
    """llama.cpp turns neighbours in a head, others turn its two halves; its converter reorders the rows accordingly."""
    rows, columns = value.shape
    return value.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(gguf: Gguf) -> dict[str, Any]:
    tokens, types = gguf["tokenizer.ggml.tokens"], gguf["tokenizer.ggml.token_type"]
    special = [(at, token) for at, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind == _CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": at, "content": token, **flags} for at, token in special],
        "normalizer": None,
        # What llama.cpp calls `smollm`.
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": gguf["tokenizer.ggml.merges"],
        },
    }


def _tokenizer_config(gguf: Gguf) -> dict[str, Any]:
    tokens = gguf["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[_id(gguf, "bos")],
        "eos_token": tokens[_id(gguf, "eos")],
        "unk_token": tokens[_id(gguf, "unknown")],
        "pad_token": tokens[_id(gguf, "padding")],
        "model_max_length": gguf["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": gguf.chat_template,
    }


def _id(gguf: Gguf, name: str) -> int:
    return int(gguf[f"tokenizer.ggml.{name}_token_id"])
