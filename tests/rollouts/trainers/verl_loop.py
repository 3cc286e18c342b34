"""verl: an agent loop that renders and reads with unbraid, run by hand, as its output."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

import unbraid

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": PARAMETERS}}]
SAID = (
    '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>',
    "It is 3.<|im_end|>",
)


class UnbraidLoop(AgentLoopBase):  # type: ignore[misc]
    """Calls and results in turn, until the model calls nothing."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        renderer = unbraid.renderer(self.tokenizer, format="qwen3")
        prompt, steps = renderer.render(kwargs["raw_prompt"], TOOLS), []
        while True:
            said = await self.server_manager.generate(
                request_id="1", prompt_ids=list(prompt.ids), sampling_params=sampling_params
            )
            steps.append((prompt, said.token_ids, said.log_probs))
            turn = renderer.parse(said.token_ids, prompt)
            results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in turn.settled.tool_calls]
            more = renderer.extend(prompt, said.token_ids, results) if results else None
            if more is None:
                break
            prompt = more
        row = renderer.training_sample(steps)
        return AgentLoopOutput(
            prompt_ids=list(row.prompt_ids),
            response_ids=list(row.response_ids),
            response_mask=list(row.response_mask),
            response_logprobs=list((row.logprobs or ())[row.prompt_length :]),
            num_turns=2 * len(steps),
            metrics=AgentLoopMetrics(),
        )


class Server:
    """In the place of verl's: it says what a model would."""

    def __init__(self, tokenizer: Any) -> None:
        self._turns = iter([tokenizer.encode(text, add_special_tokens=False) for text in SAID])

    async def generate(self, **_: Any) -> Any:
        ids = next(self._turns)
        return SimpleNamespace(token_ids=ids, log_probs=[-1.0] * len(ids))


def main(folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    loop = UnbraidLoop.__new__(UnbraidLoop)  # its own __init__ wants the trainer's whole configuration
    loop.tokenizer, loop.server_manager = tokenizer, Server(tokenizer)
    asked = [{"role": "user", "content": "What is 1 and 2?"}]
    output = asyncio.run(loop.run({}, raw_prompt=asked))
    sampled = [tokenizer.encode(text, add_special_tokens=False) for text in SAID]
    assert sum(output.response_mask) == sum(map(len, sampled))
    assert output.response_ids[: len(sampled[0])] == sampled[0]
    batch = output.as_dict()
    assert batch["responses"].shape == batch["response_mask"].shape == batch["rollout_log_probs"].shape
    print("verl: an agent loop of two turns; its output trains on what was sampled")


if __name__ == "__main__":
    main(sys.argv[1])
