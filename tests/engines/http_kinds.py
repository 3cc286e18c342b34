"""The engines behind HTTP and the servers that stand in for theirs, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from unbraid.engines import Piece
from unbraid.engines.openai import OpenAIEngine
from unbraid.engines.routing import Routing
from unbraid.engines.server import Servers
from unbraid.engines.sglang import SGLangEngine
from unbraid.engines.vllm.server import VLLMEngine

from ..support.byte_vocabulary import END, MARKER, VOCABULARY
from ..support.fake_servers import FakeServer, FakeSGLang, FakeVLLM

HELLO = [*"Hé 🦜".encode(), MARKER, END]
PROMPT = (1, 2, 3)
QUIET = Routing(check_interval=60.0)


class Kind(NamedTuple):
    """An engine behind HTTP, and what stands in for its server."""

    server: Callable[..., FakeServer]
    engine: Callable[..., Servers]
    gives_ids: bool = True
    """Whether the output comes as token ids. Text cannot go on at another replica unless it is greedy."""


KINDS: dict[str, Kind] = {
    "sglang": Kind(FakeSGLang, SGLangEngine),
    "vllm": Kind(FakeVLLM, VLLMEngine),
    "openai": Kind(FakeVLLM, OpenAIEngine, gives_ids=False),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def engine(kind: str, *servers: FakeServer, **options: Any) -> Servers:
    options = {"routing": QUIET, "vocabulary": VOCABULARY, **options}
    return KINDS[kind].engine([server.url for server in servers], **options)


def ids_of(outputs: list[Any]) -> list[int]:
    return [token for output in outputs if isinstance(output, Piece) for token in output.ids]


def text_of(outputs: list[Any]) -> str:
    return "".join(output.text or "" for output in outputs if isinstance(output, Piece))


def whole(outputs: list[Any]) -> bytes:
    """All bytes, be they tokens or text."""
    return b"".join(VOCABULARY.token_bytes(token) or b"" for token in ids_of(outputs)) + text_of(outputs).encode()
