"""TRL: a step of GRPO on a tiny model, with a tool between two turns. The rewards are given messages."""

from __future__ import annotations

import random
import sys
import tempfile
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-not-found]
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

import unbraid

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": PARAMETERS}}]
SAID = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>'
rewarded: list[Any] = []


def main(folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    renderer = unbraid.renderer(tokenizer, format="qwen3")
    chance = random.Random(0)

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Two turns each: a call, its result, an answer. (A tiny model says nothing: its turns are written here.)"""
        rows, messages = [], []
        for messages_before in prompts:
            prompt = renderer.render(messages_before, TOOLS)
            first = tokenizer.encode(SAID, add_special_tokens=False)
            turn = renderer.parse(first, prompt)
            call = turn.message.tool_calls[0]
            result = {"role": "tool", "tool_call_id": call.id, "content": "3"}
            more = renderer.extend(prompt, first, [result])
            assert more is not None, renderer.obstacle(prompt, first, [result])
            second = tokenizer.encode(f"It is {chance.randrange(9)}.<|im_end|>", add_special_tokens=False)
            rows.append(
                renderer.training_sample([(prompt, first, [-1.0] * len(first)), (more, second, [-1.0] * len(second))])
            )
            messages.append([turn.to_openai(), result, renderer.parse(second, more).to_openai()])
        return {
            "prompt_ids": [list(row.prompt_ids) for row in rows],
            "completion_ids": [list(row.response_ids) for row in rows],
            "logprobs": [list((row.logprobs or ())[row.prompt_length :]) for row in rows],
            "env_mask": [list(row.response_mask) for row in rows],
            "messages": messages,
        }

    def reward(completions: list[Any], messages: list[Any], **_: Any) -> list[float]:
        rewarded.extend(messages)
        return [float("3" in turn[-1]["content"]) + chance.random() for turn in messages]

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    before = model.model.embed_tokens.weight.detach().clone()
    prompts = Dataset.from_list([{"prompt": [{"role": "user", "content": "What is 1 and 2?"}]}] * 2)
    with tempfile.TemporaryDirectory() as output:
        arguments = GRPOConfig(
            output_dir=output,
            per_device_train_batch_size=2,
            num_generations=2,
            max_steps=1,
            learning_rate=0.1,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
        )
        trainer = GRPOTrainer(
            model, reward, args=arguments, train_dataset=prompts, processing_class=tokenizer, rollout_func=rollout
        )
        trainer.train()
    assert [message["role"] for message in rewarded[0]] == ["assistant", "tool", "assistant"]
    assert rewarded[0][0]["tool_calls"][0]["function"]["name"] == "add"
    assert not torch.equal(before, model.model.embed_tokens.weight)
    parsed_by_trl(tokenizer)
    print("TRL: a step of GRPO with a tool; the rewards were given messages")


def parsed_by_trl(tokenizer: Any) -> None:
    """TRL's own loop of tools reads turns with a response_template. One that unbraid wrote does."""
    from trl.chat_template_utils import parse_response  # type: ignore[import-not-found]

    from unbraid.templates.detection.response_template_export import response_template

    tokenizer.response_template = response_template(unbraid.find("qwen3")).document
    message = parse_response(tokenizer, tokenizer.encode(SAID, add_special_tokens=False), prefix=[], tools=TOOLS)
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1, "b": 2}}, message


if __name__ == "__main__":
    main(sys.argv[1])
