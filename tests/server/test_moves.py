"""Outputs that move to another replica: by every format, from any cut, with several choices and under a constraint.

Replicas play what a format's own template writes for a message. Wherever one of them breaks off, the turn is the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, Text, ToolCall
from unbraid.engines import Finish, Generation, Piece
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.engines.routing import AffinityRules, RetryRules, Routed, Routing
from unbraid.server.generation.choice import merged
from unbraid.server.generation.plan import plan_chat
from unbraid.server.generation.task import ChatTask
from unbraid.server.generation.updates import Usage

from ..soak.truth import TOOL, Bytes
from ..support.examples import LONG
from ..support.running_server import service_of

FORMATS = [format for format in unbraid.all_formats() if format.speech is None and format.transcript is None]
"""Those that write text alone: the tokenizer of these tests has no audio."""
CASES = [
    pytest.param(format, strict, id=f"{format.name}-{'strict' if strict else 'free'}")
    for format in FORMATS
    for strict in (False, True)
    if not strict or format.tools is not None  # there is something to call
]
BYTES = Bytes()
CALL = ToolCall("look_up", '{"word": "té 🦜", "count": 3}', "abcdefghi")


class Enforcing(ReplayEngine):
    """Plays a script, and asks for the grammar as an engine would that enforces it."""

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        if request.constraint is not None:
            await asyncio.to_thread(request.constraint.to_llama_cpp)
        async for output in super().generate(request):
            yield output


def replicas(whole: Script, cut: int | None) -> tuple[Routed, list[Enforcing]]:
    """Some, of which the first breaks off every output."""
    scripts = [whole if cut is None else whole.failing(after=cut), whole, whole]
    engines = [Enforcing([one], repeat=True) for one in scripts]
    routing = Routing(check_interval=1e9, retries=RetryRules(minimum=100), affinity=AffinityRules(factor=0.0))
    return Routed(engines, routing), engines


async def turn(
    format: Format, whole: Script, task: ChatTask, cut: int | None
) -> tuple[list[Any], Any, list[Enforcing]]:
    """What becomes of the choices, the counts, and the engines."""
    engine, engines = replicas(whole, cut)
    service = service_of(engine, format, tokenizer=BYTES, syntax="gbnf")
    [served] = service.models
    usage = Usage()
    turns = plan_chat(served.model, task).choices(service, served, usage, 0.0, keep_message=True)
    async for _ in merged(turns):
        pass
    await engine.close()
    return [said(each.parser.message) for each in turns], (usage.prompt, usage.completion, usage.strands), engines


def said(message: Message) -> list[tuple[Any, ...]]:
    """A message without the ids of calls, which are drawn by chance."""
    parts = [(part.name, part.arguments) if isinstance(part, ToolCall) else part for part in message.parts]
    return [(type(part).__name__, part) for part in parts]


def written(format: Format, *, strict: bool) -> Script:
    parts: list[Any] = []
    if format.reasoning is not None and not strict:
        parts.append(Text("reasoning", "Let me <think"))
    if not strict:
        parts.append(Text("content", "Voilà, {one} moment."))
    if format.tools is not None:
        parts.append(CALL)
    text = unbraid.render(format, Message(tuple(parts)))
    return script(tuple(text.encode()), chunks=(1, 9), seed=len(text))


@pytest.mark.parametrize(("format", "strict"), CASES)
def test_every_format_moves(format: Format, strict: bool) -> None:
    whole = written(format, strict=strict)
    tools = [] if format.tools is None else [TOOL]
    task = ChatTask(
        messages=({"role": "user", "content": "Hello!"},),
        tools=tools,
        tool_choice="required" if strict else None,
        sampling={"temperature": 0.0},
        choices=2,
    )
    undisturbed = asyncio.run(turn(format, whole, task, None))
    chance = random.Random(format.name)
    places = range(1, len(whole.steps) + 1)
    for cut in places if LONG else sorted(chance.sample(places, min(2, len(places)))):
        messages, usage, engines = asyncio.run(turn(format, whole, task, cut))
        assert (messages, usage) == undisturbed[:2], cut
        assert sum(len(engine.requests) for engine in engines) > task.choices, "nothing moved"
