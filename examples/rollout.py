"""Roll out a two-turn tool environment against the small embedded model, and make rows to train on of it.

python examples/rollout.py

The model calls a tool, the environment answers, the model says what it found. The ids that the model sampled are the
ids in the row: nothing is tokenized again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import unbraid
from unbraid.engines import Finish, Generation, Sampling
from unbraid.engines.llama_cpp.embedded import EmbeddedEngine

FORMAT = "hermes"
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": PARAMETERS}}
]


async def sample(engine: EmbeddedEngine, ids: tuple[int, ...], call: bool) -> tuple[list[int], list[float]]:
    """What the model writes, and how likely each token was."""
    choice = "required" if call else "none"
    constraint = unbraid.constraint(FORMAT, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    asked = Generation(prompt=ids, sampling=Sampling(temperature=0), max_tokens=60, constraint=constraint, logprobs=0)
    sampled: list[int] = []
    logprobs: list[float] = []
    async for said in engine.generate(asked):
        if not isinstance(said, Finish):
            sampled += said.ids
            logprobs += [each.logprob for each in said.logprobs]
    return sampled, logprobs


def answer(turn: unbraid.Message) -> list[dict[str, Any]]:
    """The environment: it runs the calls, and says so if there are none that can be run."""
    results = []
    for call in turn.settled().tool_calls:
        arguments = json.loads(call.arguments)
        total = sum(value for value in arguments.values() if isinstance(value, int))
        results.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})
    return results or [{"role": "user", "content": "Call the tool, please."}]


async def main() -> None:
    engine = EmbeddedEngine(parallel=1)
    renderer = unbraid.renderer(engine.chat_template or "chatml", engine.vocabulary, FORMAT)
    prompt = renderer.render([{"role": "user", "content": "What is 17 and 25?"}], TOOLS)
    first, first_logprobs = await sample(engine, prompt.ids, call=True)
    turn = renderer.parse(first, prompt=prompt)
    more = renderer.extend(prompt, first, answer(turn.message))
    assert more is not None, renderer.reasons
    second, second_logprobs = await sample(engine, more.ids, call=False)
    row = renderer.training_sample([(prompt, first, first_logprobs), (more, second, second_logprobs)])
    print("called:", [(call.name, call.complete) for call in turn.message.tool_calls])
    print("the past is what it was:", row.ids[: len(prompt) + len(first)] == (*prompt.ids, *first))
    print("trained on what was sampled:", sum(row.loss_mask) == len(first) + len(second))
    # The shapes of trainers: verl's agent loops and TRL's rollout functions take these lists.
    verl = {"prompt_ids": row.prompt_ids, "response_ids": row.response_ids, "response_mask": row.response_mask}
    logprobs = (row.logprobs or ())[row.prompt_length :]
    trl = {
        "prompt_ids": row.prompt_ids,
        "completion_ids": row.response_ids,
        "logprobs": logprobs,
        "env_mask": row.response_mask,
    }
    print("verl:", *verl, "TRL:", *trl)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
