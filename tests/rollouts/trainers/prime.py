"""`renderers`, and verifiers, which renders with it: a custom renderer that is unbraid's.

The rollout is sampled: verifiers runs an agent with its client for training, which sends ids to an endpoint
(`sampling.py`) and is sent ids.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.request import urlopen

from renderers import base, configs  # type: ignore[import-not-found]
from transformers import AutoTokenizer

IMPORT_PATH = "unbraid.rollouts.prime.UnbraidRenderer"
TOOLS = [
    {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
]
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = [{"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": NUMBERS}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TURN = f"<think>\nHm.\n</think>\n\n{CALL}<|im_end|>"
BROKEN = TURN.replace("<|im_end|>", f"\n{CALL.replace('1', 'x')}\n{CALL}<|im_end|>")


def rendered(folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = configs.CustomRendererConfig(import_path=IMPORT_PATH, format="qwen3")
    ours = base.create_renderer(tokenizer, config)
    theirs = base.create_renderer(tokenizer, configs.Qwen3RendererConfig())
    assert isinstance(ours, base.Renderer)
    messages = [{"role": "user", "content": "What is 1 and 1?"}]
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    prompt = ours.render_ids(messages, tools=tools, add_generation_prompt=True)
    assert prompt == theirs.render_ids(messages, tools=tools, add_generation_prompt=True)
    broken = tokenizer.encode(BROKEN, add_special_tokens=False)
    mine, other = (each.parse_response(broken, tools=tools, prompt_ids=prompt) for each in (ours, theirs))
    assert [call.status.value for call in mine.tool_calls] == ["ok", "invalid_json", "ok"]
    assert [call.status for call in mine.tool_calls] == [call.status for call in other.tool_calls]
    assert [call.token_span for call in mine.tool_calls] == [call.token_span for call in other.tool_calls]
    assert (mine.reasoning_content, mine.reasoning_complete) == (other.reasoning_content, other.reasoning_complete)
    sampled = tokenizer.encode(TURN, add_special_tokens=False)
    call = ours.parse_response(sampled, tools=tools, prompt_ids=prompt).tool_calls[0]
    results = [{"role": "tool", "tool_call_id": call.id, "name": "add", "content": "2"}]
    bridge = ours.bridge_to_next_turn(prompt, sampled, results, tools=tools)
    known = theirs.bridge_to_next_turn(prompt, sampled, results, tools=tools)
    assert bridge is not None
    assert bridge.token_ids[: len(prompt) + len(sampled)] == [*prompt, *sampled]
    assert known is None or bridge.token_ids == known.token_ids
    assert max(bridge.message_indices) == 0
    print("renderers: prompts, turns, statuses, spans and bridges are those of its own renderer")


# A sampled rollout through verifiers


def rolled_out(folder: str, url: str) -> None:
    """Two turns with a tool between them. The trace has the ids that were sampled, and the second prompt begins with
    those of the first turn."""
    import verifiers.v1 as vf  # type: ignore[import-not-found]
    from openai import AsyncOpenAI
    from verifiers.v1.agent import Agent  # type: ignore[import-not-found]
    from verifiers.v1.configs.agent import AgentConfig  # type: ignore[import-not-found]
    from verifiers.v1.harnesses.null.harness import NullHarness  # type: ignore[import-not-found]
    from verifiers.v1.runtimes import ProgramResult  # type: ignore[import-not-found]

    class Loop(NullHarness):  # type: ignore[misc]
        """Calls and results in turn, until the model calls nothing; in this process."""

        async def setup(self, runtime: Any) -> None:
            """Nothing to install."""

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *_: Any, **__: Any
        ) -> Any:
            client = AsyncOpenAI(base_url=endpoint, api_key=secret)
            messages: list[Any] = [{"role": "user", "content": "What is 17 and 25?"}]
            while True:
                reply = await client.chat.completions.create(model=ctx.model, messages=messages, tools=ADD)
                said = reply.choices[0].message
                messages.append(said.model_dump(exclude_none=True))
                if not said.tool_calls:
                    return ProgramResult(0, said.content or "", "")
                for call in said.tool_calls:
                    total = sum(json.loads(call.function.arguments).values())
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})

    agent = Agent(
        AgentConfig.model_validate(
            {
                "model": folder,
                "harness": {"id": "null"},
                "runtime": {"type": "subprocess"},
                "client": {
                    "type": "train",
                    "base_url": url,
                    "api_key_var": "UNBRAID_NO_KEY",
                    "renderer": {"name": "custom", "import_path": IMPORT_PATH, "format": "hermes"},
                },
            }
        )
    )
    agent.harness = Loop(agent.harness.config)

    async def run() -> Any:
        async with agent:
            return await agent.run(vf.Task(vf.TaskData(prompt="What is 17 and 25?")))

    trace = asyncio.run(run())
    assert not trace.errors, trace.errors
    with urlopen(url.removesuffix("/v1") + "/sampled") as reply:
        sampled: list[list[int]] = json.load(reply)
    assert len(sampled) == 2
    [branch] = trace.branches  # the second prompt goes on from the first turn: else it would be a branch of its own
    marked = [id for id, own in zip(branch.token_ids, branch.sampled_mask, strict=True) if own]
    assert marked == [*sampled[0], *sampled[1]], "what is trained on is not what was sampled"
    assert sum(each != 0 for each in branch.logprobs) > len(marked) // 2
    [call] = trace.assistant_messages[0].tool_calls
    assert call.name == "add"
    print(f"verifiers: a rollout of two turns with a tool; {len(marked)} sampled ids are trained on as they are")


if __name__ == "__main__":
    rendered(sys.argv[1])
    rolled_out(*sys.argv[2:])
