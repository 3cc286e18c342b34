"""llama.cpp's chat parser: the session that its server feeds with sampled text, from the xllamacpp wheel. Run by an
interpreter that has it.

The wheel has no Python name for it but exports its symbols. With the argument `build` this fetches the wheel's source
for its headers, and compiles `llama_chat.cpp` against them. llama.cpp derives a parser from a chat template, so it is
run on formats that a vendor's template writes. Its server also constrains calls by a grammar; text that such a grammar
would not admit can be in the corpus, and reaches the parser only where no grammar is in force.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from . import worker

FORMATS = (
    "apertus",
    "cohere-command-3",
    "cohere-command-4",
    "deepseek-v3.1",
    "deepseek-v4",
    "gigachat-3",
    "glm-4.5",
    "glm-4.7",
    "granite-4",
    "harmony",
    "hermes",
    "kimi-k2",
    "kimi-k3",
    "lfm2",
    "llama-3",
    "minimax-m2",
    "mistral-v3",
    "mistral-v11",
    "mistral-v13",
    "poolside-v1",
    "qwen2.5",
    "qwen3",
    "qwen3-coder",
    "qwen3-thinking",
    "seed-oss",
)
"""Whose templates its repository has among its own (`models/templates`)."""
WITHOUT_REASONING = ("apertus",)
"""Whose templates take thoughts in a form of their own, so that it derives no reasoning from them."""

HOME = Path(__file__).resolve().parents[2] / ".venv-scoreboard"


def version() -> str:
    return importlib.metadata.version("xllamacpp")


def library() -> Path:
    source = (Path(__file__).parent / "llama_chat.cpp").read_bytes()
    return HOME / f"llama_chat-{version()}-{hashlib.sha256(source).hexdigest()[:8]}.so"


def build() -> None:
    """Compile the interface, unless it is there."""
    if library().exists():
        return
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(_source())) as archive:
            members = [one for one in archive.getmembers() if one.name.endswith((".h", ".hpp"))]
            archive.extractall(folder, members, filter="data")
        (root,) = Path(folder).glob("*/thirdparty/llama.cpp")
        includes = [f"-I{root / one}" for one in ("common", "include", "ggml/include", "vendor")]
        command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=0"]
        source = Path(__file__).parent / "llama_chat.cpp"
        subprocess.run([*command, *includes, str(source), "-o", str(library())], check=True)


def _source() -> bytes:
    index = urllib.request.urlopen("https://pypi.org/simple/xllamacpp/", timeout=60).read().decode()
    match = re.search(rf'href="([^"]*/xllamacpp-{re.escape(version())}\.tar\.gz)#sha256=([0-9a-f]+)"', index)
    if match is None:
        raise RuntimeError(f"no source of xllamacpp {version()}")
    data: bytes = urllib.request.urlopen(match[1], timeout=600).read()
    if hashlib.sha256(data).hexdigest() != match[2]:
        raise RuntimeError(f"{match[1]} is not what the index says")
    return data


class LlamaCppStream(worker.Folded):
    def __init__(self, library: ctypes.CDLL, job: worker.Job) -> None:
        super().__init__()
        self.binding = library
        body = {"messages": job["messages"], "tools": job["tools"], "options": job["template_options"]}
        source = Path(job["template"]).read_bytes()
        self.chat = library.chat_open(source, json.dumps({**body, "thinking": job["thinking"]}).encode())
        said = library.chat_said(self.chat)
        if said.startswith(b'{"error"'):
            raise RuntimeError(json.loads(said)["error"])

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        deltas = json.loads(self.binding.chat_feed(self.chat, text.encode(), last))
        if isinstance(deltas, dict):
            raise RuntimeError(deltas["error"])
        for delta in deltas:
            self.content += delta["content"]
            self.reasoning += delta["reasoning"]
            if "index" in delta:
                self.call(delta["index"], delta["name"], delta["arguments"])

    def __del__(self) -> None:
        if hasattr(self, "chat"):
            self.binding.chat_close(self.chat)


class LlamaCpp:
    def __init__(self) -> None:
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        self.build = str(getattr(importlib.import_module("xllamacpp"), "BUILD_INFO", ""))
        self.binding = ctypes.CDLL(str(library()))
        self.binding.chat_open.restype = ctypes.c_void_p
        for name in ("chat_said", "chat_feed"):
            getattr(self.binding, name).restype = ctypes.c_char_p
        self.binding.chat_said.argtypes = self.binding.chat_close.argtypes = [ctypes.c_void_p]
        self.binding.chat_feed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool]

    def claims(self) -> dict[str, bool]:
        return {format: format not in WITHOUT_REASONING for format in FORMATS}

    def open(self, job: worker.Job) -> LlamaCppStream:
        return LlamaCppStream(self.binding, job)

    def whole(self, job: worker.Job) -> worker.Fields:
        stream = self.open(job)
        stream.feed([], "".join(job["texts"]), last=True)
        return stream.reply()


def _main(arguments: list[str]) -> Any:
    return build() if arguments == ["build"] else worker.serve(LlamaCpp(), "xllamacpp")


if __name__ == "__main__":
    _main(sys.argv[1:])
