"""Real clients, our server, and a real vLLM behind it: the suite that the embedded engine passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from unbraid.server.loading.service import load
from unbraid.server.settings import Settings

from ..engines.vllm_process import skip_without_vllm, vllm_serve
from ..support.running_server import RunningServer, serving
from .client_suite import CONTEXT, MODEL, ClientSuite
from .client_suite_dialects import MessagesSuite, ResponsesSuite
from .client_suite_others import CurlSuite, LangChainSuite, NodeSuite

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """As `unbraid serve --vllm URL` makes it: all else it learns from vLLM."""
    skip_without_vllm()
    with vllm_serve(CONTEXT, tmp_path_factory.mktemp("vllm")) as behind:
        options = Settings(vllm=(behind.url,), chat_template="chatml", served_model_name=(MODEL,))
        with serving(asyncio.run(load(options))) as running:
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
