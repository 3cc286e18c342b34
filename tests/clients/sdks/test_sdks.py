"""SDKs and frameworks: every client does every task that it can, and shows and sends back what the table says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...support.scripted_server import Scripted
from .clients import CLIENTS
from .contract import ANSWER, CITY, DESCRIPTION, REPORT, RESULT, THOUGHT, WONDER, Client
from .model import prompt_of, weather_model

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with weather_model(tmp_path_factory.mktemp("store")) as scripted:
        yield scripted


def those_that(*tasks: str) -> pytest.MarkDecorator:
    found = [(client, task) for client in CLIENTS for task in tasks if task in client.tasks()]
    return pytest.mark.parametrize(("client", "task"), found, ids=str)


@those_that("answer", "stream")
def test_an_answer(model: Scripted, client: Client, task: str) -> None:
    reply = getattr(client, task)(model.server.url)
    assert reply.text == ANSWER
    assert (reply.reasoning or "").strip() == (THOUGHT if client.shows_reasoning else "")
    assert (reply.pieces > 2) is (task == "stream")


@those_that("tools", "streamed_tools")
def test_a_tool(model: Scripted, client: Client, task: str) -> None:
    loop = getattr(client, task)(model.server.url)
    assert loop.text == REPORT
    assert loop.cities == (CITY,)
    prompts = [prompt_of(model, request) for request in model.engine.requests]
    prompt = [prompt for prompt in prompts if client.question(task) in prompt][-1]
    assert RESULT in prompt
    assert "get_weather" in prompt.partition("<|im_start|>assistant")[2], "its own call"
    assert (WONDER in prompt) is client.returns_reasoning


@those_that("structured")
def test_a_value(model: Scripted, client: Client, task: str) -> None:
    assert getattr(client, task)(model.server.url) == DESCRIPTION
