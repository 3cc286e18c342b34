"""Runs the renderers of `tinker-cookbook` on jobs, in an environment of its own: jobs come in as JSON, and ids go out.

It knows no unbraid. An empty module stands in for torch, a gigabyte, which is for the weights of training examples and
not for prompts.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

from transformers import PreTrainedTokenizerFast

_torch = ModuleType("torch")
_torch.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
sys.modules["torch"] = _torch

from tinker_cookbook import renderers  # type: ignore[import-not-found]  # noqa: E402


def main() -> None:
    given = json.load(sys.stdin)
    json.dump([done(given["tokenizer"], job) for job in given["jobs"]], sys.stdout)


def done(path: str, job: dict[str, Any]) -> dict[str, Any]:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=path, bos_token=job["bos"] or None, eos_token=job["eos"] or None)
    try:
        renderer = renderers.get_renderer(job["renderer"], tokenizer, model_name="unbraid")
        messages = [_message(each) for each in job["messages"]]
        if job["tools"]:
            first = messages.pop(0)["content"] if messages[0]["role"] == "system" else ""
            functions = [tool["function"] for tool in job["tools"]]
            messages = [*renderer.create_conversation_prefix_with_tools(functions, first), *messages]
        prompt = renderer.build_generation_prompt(messages)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    ids = [id for chunk in prompt.chunks for id in chunk.tokens]
    return {"ids": ids, "extends": bool(renderer.has_extension_property)}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the chat API in their form."""
    made: dict[str, Any] = {key: message[key] for key in ("role", "content", "name", "tool_call_id") if key in message}
    if message.get("reasoning_content"):
        thinking = {"type": "thinking", "thinking": message["reasoning_content"]}
        made["content"] = [thinking, {"type": "text", "text": message["content"]}]
    if message.get("tool_calls"):
        made["tool_calls"] = [
            renderers.ToolCall(
                id=call["id"],
                function=renderers.ToolCall.FunctionBody(
                    name=call["function"]["name"], arguments=json.dumps(call["function"]["arguments"])
                ),
            )
            for call in message["tool_calls"]
        ]
    return made


if __name__ == "__main__":
    main()
