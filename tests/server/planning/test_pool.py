"""Worker processes: what they return, and how they end."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unbraid import find
from unbraid.constraints import Constraint
from unbraid.constraints.constraint import constraint
from unbraid.errors import OverBudget
from unbraid.server.errors import ApiError
from unbraid.server.http import SHUTDOWN, Sender, sender
from unbraid.server.model import Model
from unbraid.server.planning import pickling
from unbraid.server.planning.pickling import SharedModels
from unbraid.server.planning.planner import LARGE, Planner
from unbraid.server.planning.pool import WorkerPool
from unbraid.templates import PromptBuilder, built_in, encoder

from ...support import real_tokenizers
from ...support.in_loop import in_loop
from ...support.processes import is_running
from ...support.waiting import until
from . import jobs


@asynccontextmanager
async def pool(count: int = 1, seconds: float = 20.0, *models: Model) -> AsyncGenerator[WorkerPool, None]:
    known = SharedModels()
    for model in models:
        known.add(model)
    workers = WorkerPool(count, seconds, known)
    try:
        yield workers
    finally:
        await workers.close()
        known.forget()


@in_loop
async def test_a_worker_returns_and_raises_what_the_work_does() -> None:
    async with pool() as workers:
        assert await workers.run("a", jobs.add, (1,), {"other": 2}) == 3
        with pytest.raises(ApiError, match="no") as raised:
            await workers.run("a", jobs.refuse, (), {})
        error = raised.value
        assert (error.status, error.param, error.code, error.retry_after) == (418, "x", "teapot", 2.0)
        assert await workers.run("a", jobs.shout, (), {}) == "quiet"
        assert await workers.run("a", jobs.niceness, (), {}) > os.nice(0) or os.nice(0) == 19, "it gives way"
        assert await workers.run("a", jobs.pid, (), {}) == workers.pids[0], "it is the same one all the time"


@in_loop
async def test_a_job_that_takes_too_long_is_over_budget_and_the_worker_goes_on() -> None:
    async with pool(seconds=0.3) as workers:
        with pytest.raises(OverBudget, match=r"^x\.y takes more than 0\.3 seconds"):
            await workers.run("a", jobs.spin_metered, ("x.y",), {})
        with pytest.raises(OverBudget):
            await workers.run("a", jobs.spin, (), {})
        (pid,) = workers.pids
        assert await workers.run("a", jobs.pid, (), {}) == pid


@in_loop
async def test_a_job_that_nobody_waits_for_is_killed(tmp_path: Path) -> None:
    async with pool(seconds=1e6) as workers:
        begun = tmp_path / "begun"
        task = asyncio.ensure_future(workers.run("a", jobs.begin_to_spin, (str(begun),), {}))
        await until(lambda: begun.exists() and bool(begun.read_text()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pid = int(begun.read_text())
        await until(lambda: not is_running(pid))
        assert await workers.run("a", jobs.add, (1, 2), {}) == 3, "another one has taken its place"


@in_loop
async def test_a_worker_that_dies_is_replaced() -> None:
    async with pool() as workers:
        with pytest.raises(ApiError) as raised:
            await workers.run("a", jobs.crash, (), {})
        assert raised.value.status == 500
        assert await workers.run("a", jobs.add, (1, 2), {}) == 3


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited on Linux alone")
@in_loop
async def test_a_job_that_takes_too_much_memory_is_over_budget() -> None:
    async with pool() as workers:
        with pytest.raises(OverBudget, match="memory"):
            await workers.run("a", jobs.swallow_memory, (), {})


@in_loop
async def test_the_end_of_the_server_does_not_wait_for_workers(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    async with pool(2, 1e6) as workers:
        workers.warm()
        task = asyncio.ensure_future(workers.run("a", jobs.begin_to_spin, (str(begun),), {}))
        await until(lambda: begun.exists() and bool(begun.read_text()) and len(workers.pids) == 2)
        pids = workers.pids
    with pytest.raises(ApiError) as raised:
        await task
    assert raised.value is SHUTDOWN
    assert not any(map(is_running, pids))


@in_loop
async def test_a_worker_ends_with_its_server() -> None:
    """Whose pipes are closed when it is killed."""
    async with pool() as workers:
        await workers.run("a", jobs.add, (1, 2), {})
        (worker,) = workers._idle
        assert worker._process.stdin is not None
        worker._process.stdin.close()
        await until(lambda: worker._process.poll() is not None)
        assert worker._process.returncode == 0


TOKENIZERS: dict[str, Any] = {
    "tiktoken": lambda: real_tokenizers.step_audio_2(kind="tiktoken"),
    "tokenizers": real_tokenizers.qwen3_huggingface,
    "tekken": lambda: real_tokenizers.mistral(11),
    "sentencepiece": lambda: real_tokenizers.mistral(1),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_model_can_be_sent_with_any_tokenizer(kind: str) -> None:
    texts = encoder(TOKENIZERS[kind]())
    format = find("hermes")
    model = Model(format=format, builder=PromptBuilder(built_in("chatml"), texts, format), encoder=texts)
    models = SharedModels()
    assert models.can_be_sent([model])
    (name,) = models.changing()
    pickling.learn("copy", models.sent(name))
    copy = pickling.model_named("copy")
    messages = [{"role": "user", "content": "Grüße <|im_end|> 你好"}]
    assert copy.chat_builder().build(messages).ids == model.chat_builder().build(messages).ids
    models.forget()
    del pickling._models["copy"]


@in_loop
async def test_a_model_comes_back_as_itself_and_is_known_as_it_is_now() -> None:
    format = find("hermes")
    model = Model(format=format, builder=PromptBuilder(built_in("chatml"), None, format))
    async with pool(1, 20.0, model) as workers:
        assert await workers.run("a", jobs.model_itself, (model,), {}) is model
        assert await workers.run("a", jobs.context_of, (model,), {}) is None
        model.context = 4096
        assert await workers.run("a", jobs.context_of, (model,), {}) == 4096


def test_what_cannot_be_sent_is_seen() -> None:
    format = find("hermes")
    model = Model(format=format, builder=PromptBuilder(built_in("chatml"), None, format, part_hook=lambda *_: ""))
    models = SharedModels()
    assert not models.can_be_sent([model])
    models.forget()


def made(**more: Any) -> Constraint:
    tools = [{"name": "f", "strict": True, "parameters": {"properties": {"a": {"type": "integer"}}}}]
    given: dict[str, Any] = {"tools": tools, "tool_choice": "auto", "parallel_tool_calls": None, "reasoning": None}
    given["format"] = find("hermes")
    return constraint(**{**given, "response_format": None, "vocabulary": None, "prompt": None, **more})


@in_loop
async def test_a_model_that_no_worker_can_read_is_worked_with_in_threads() -> None:
    unread: Any = jobs.OnlyHere()
    model = Model(format=find("qwen3"), builder=unread)
    planner = Planner(1)
    large = Sender("a")
    large.size = LARGE + 1
    token = sender.set(large)
    try:
        planner.add(model)
        planner.warm()
        for _ in range(2):  # the first finds it out
            assert await planner.run(jobs.format_name, (model,), {}) == "qwen3"
    finally:
        sender.reset(token)
        await planner.close()


def test_a_constraint_for_the_rest_of_an_output_travels_as_such() -> None:
    """Not as the constraint for all of it."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    whole = constraint(
        find("qwen3"),
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning=None,
        response_format=None,
        vocabulary=None,
        prompt=None,
    )
    rest = whole.after("<tool_call>\n")
    assert pickle.loads(pickle.dumps(rest)).to_gbnf() == whole.after("<tool_call>\n").to_gbnf() != whole.to_gbnf()


def test_a_constraint_travels_with_all_that_was_printed_and_is_kept() -> None:
    # A format of its own: of the one that all tests use, the program may have been forgotten meanwhile.
    format = replace(find("hermes"), name="hermes-that-travels")
    first = made(format=format)
    fields, tag = first.to_llama_cpp(), first.to_structural_tag()
    copy = pickling.unpacked(b"".join(pickling.packed(first)))
    assert copy.to_llama_cpp() == fields
    assert copy.to_structural_tag() == tag
    assert made(format=format) is copy, "it is kept for requests that ask for the same"
    bare = pickling.unpacked(b"".join(pickling.packed(made(tool_choice="required"))))
    assert bare.to_gbnf() == made(tool_choice="required").to_gbnf(), "what was not printed can be"
