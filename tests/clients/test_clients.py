"""Real clients and a real model: SmolLM2, run by llama.cpp in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..support.embedded_model import smollm2
from ..support.running_server import RunningServer, service_of, serving
from .client_suite import CONTEXT, MODEL, ClientSuite
from .client_suite_dialects import MessagesSuite, ResponsesSuite
from .client_suite_others import CurlSuite, LangChainSuite, NodeSuite

pytestmark = pytest.mark.system

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

    engine = EmbeddedEngine(smollm2(), context=CONTEXT, name=MODEL)
    with serving(service_of(engine, "hermes", tokenizer=engine.vocabulary, constrain_auto=True)) as running:
        yield running


class TestOpenAI(ClientSuite):
    pass


class TestResponses(ResponsesSuite):
    pass


class TestMessages(MessagesSuite):
    pass


class TestLangChain(LangChainSuite):
    pass


class TestNode(NodeSuite):
    pass


class TestCurl(CurlSuite):
    pass
