"""Files that others made: chat templates, GGUF headers, recordings of engines and of people. They are read, or refused
with an error of ours."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import wave
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import unbraid
from unbraid import UnbraidError
from unbraid.engines.recording import VERSION, read_recording
from unbraid.models.gguf import Gguf
from unbraid.speech.audio.decode import AudioLimits, read
from unbraid.templates import from_source

from ..source import Source

_JINJA = ["{%- ", " -%}", "{% ", " %}", "{{ ", " }}", "{# ", " #}", "for m in messages", "endfor", "if ", "else"]
_JINJA += ["elif "]
_JINJA += ["endif", "set ", "macro f(a)", "endmacro", "m.role", "m.content", "m['content']", "m.tool_calls"]
_JINJA += ["tools", "tool"]
_JINJA += ["messages", "messages[0]", "messages[::-1]", "loop.index0", "loop.first", "namespace(a=1)", "ns.a"]
_JINJA += ["f(m)", "range("]
_JINJA += ["|tojson", "|trim", "|string", "|length", "|join(',')", "|list", "|map(attribute='role')", "|items"]
_JINJA += ["|replace('a','b')"]
_JINJA += [" is defined", " is string", " is mapping", " in ", " not ", " and ", " or ", " == ", " + ", " ~ "]
_JINJA += [" * ", "10**9", "9"]
_JINJA += ["add_generation_prompt", "enable_thinking", "raise_exception('no')", "strftime_now('%Y')"]
_JINJA += ["<|im_start|>", "<|im_end|>"]
_JINJA += ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "assistant", "user", "'", '"']
_JINJA += ["\n", "break"]
_JINJA += ["__class__", ".__init__", "|attr('x')", "self", "cycler(1)", "lipsum()", "call.function.arguments"]
_JINJA += ["{'a': 1}", "'a'"]
_MESSAGES = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes"},
    {"role": "user", "content": ""},
]


def template(data: bytes) -> None:
    source = Source(data)
    text = "".join(source.words(_JINJA, 300))
    with suppress(UnbraidError):
        from_source(text).render(_MESSAGES, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    with suppress(UnbraidError):
        unbraid.detect(text)


def recording(data: bytes) -> None:
    """Lines of JSON with the keys that a recording has."""
    source = Source(data)
    head: Any = {"unbraid": "recording", "version": VERSION, "model": "m", "context": 9}
    lines = [head if source.chance() else source.json(_KEYS)]
    sampling: dict[str, Any] = {"logit_bias": []}
    request = {"request": 0, "prompt": "a", "sampling": sampling, "max_tokens": 1, "stop": [], "stop_tokens": []}
    known = [
        {**request, "logprobs": None},
        {"of": 0, "text": "a", "after": 0.0},
        {"of": 0, "finish": {"reason": "stop"}},
    ]
    while source and len(lines) < 20:
        line = source.choice([*known, None])
        if line is None:
            lines.append(source.json(_KEYS))
        else:
            lines.append({**line, source.choice(_KEYS): source.json(_KEYS)} if source.chance() else line)
    written = "\n".join(map(json.dumps, lines)).encode() + source.choice(
        [b"\n", b"", b"\n\xff\n", b"\nnull\n", b"\n\n"]
    )
    with temporary(written) as path, suppress(UnbraidError):
        for script in read_recording(path).scripts:
            assert isinstance(script.steps, tuple)


_KEYS = ["request", "of", "text", "ids", "after", "finish", "error", "logprobs", "prompt", "sampling", "audio"]
_KEYS += ["reason"]
_KEYS += ["logit_bias", "kind", "message", "version", "unbraid", "model", "context", "stop", "temperature"]
_KEYS += ["retry_after"]


def gguf(data: bytes) -> None:
    """A header with keys that are asked for, then any bytes."""
    source = Source(data)
    keys = ["general.name", "general.architecture", "a.context_length", "tokenizer.ggml.eos_token_id"]
    keys += ["tokenizer.chat_template", "tokenizer.ggml.tokens", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.model"]
    pairs = source.below(5)
    written = struct.pack(
        "<4sIQQ", b"GGUF", source.choice([3, 2, 1]), source.below(3), pairs if source.chance() else 2**60
    )
    for _ in range(pairs):
        key = source.choice(keys).encode()
        written += (
            struct.pack("<Q", len(key)) + key + struct.pack("<I", source.below(14)) + source.bytes(source.below(40))
        )
    with temporary(written + source.bytes()) as path, suppress(UnbraidError):
        file = Gguf(path)
        for name in ("name", "context_length", "chat_template", "bos", "ends"):
            getattr(file, name)


def audio(data: bytes) -> None:
    """The beginning of a file of a kind that is taken, damaged, then any bytes."""
    source = Source(data)
    start = bytearray(source.choice(_STARTS))
    for _ in range(source.below(6)):
        start[source.below(len(start))] = source.byte()
    with suppress(UnbraidError):
        for block in read(io.BytesIO(bytes(start) + source.bytes()), limits=AudioLimits(seconds=10.0, bytes=1 << 20)):
            assert block.ndim == 1


def _wav() -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(640))
    return held.getvalue()


_STARTS = [
    _wav(),
    b"fLaC\0\0\0\x22" + bytes(34),
    b"OggS\0\x02" + bytes(20) + b"\x01\x13OpusHead\x01\x01\x00\x00\x80\xbb\0\0\0\0\0",
    b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + b"\xff\xfb\x90\x64" + bytes(100),
    b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04\x42\xf3\x81\x08\x42\x82\x84webm",
    b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42\0\0\0\x20moov\0\0\0\x18mvhd" + bytes(16),
    b"\0",
]


@contextmanager
def temporary(data: bytes) -> Iterator[Path]:
    """A file that holds some bytes, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        yield path
