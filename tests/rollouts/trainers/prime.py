"""`renderers`, and the client of verifiers that is trained with: a custom renderer that is unbraid's."""

from __future__ import annotations

import sys

from renderers import base, configs  # type: ignore[import-not-found]
from transformers import AutoTokenizer

TOOLS = [
    {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TURN = f"<think>\nHm.\n</think>\n\n{CALL}<|im_end|>"
BROKEN = TURN.replace("<|im_end|>", f"\n{CALL.replace('1', 'x')}\n{CALL}<|im_end|>")


def main(folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = configs.CustomRendererConfig(import_path="unbraid.rollouts.prime.UnbraidRenderer", format="qwen3")
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
    trained_with(config)
    print("renderers: prompts, turns, statuses, spans and bridges are those of its own renderer")


def trained_with(config: object) -> None:
    """verifiers holds the configuration of a renderer in that of its client."""
    from verifiers.v1.configs import client  # type: ignore[import-not-found]

    holders = [
        kind
        for kind in vars(client).values()
        if isinstance(kind, type) and "renderer" in getattr(kind, "model_fields", {})
    ]
    assert holders, "no client of verifiers takes a renderer"
    taken = holders[0].model_validate({"renderer": config.model_dump()})  # type: ignore[attr-defined]
    assert taken.renderer.import_path == "unbraid.rollouts.prime.UnbraidRenderer"
    print(f"verifiers: {holders[0].__name__} takes it")


if __name__ == "__main__":
    main(sys.argv[1])
