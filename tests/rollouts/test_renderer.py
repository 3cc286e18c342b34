"""A renderer case by case: what is cut off, where the next message ends the turn, prefills, speech, batches, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import unbraid
from unbraid.rollouts import Rendering, TrajectoryStep
from unbraid.rollouts.values import PromptKeys
from unbraid.templates import BUILT_IN

from ..support import real_tokenizers
from ..support.real_tokenizers import qwen3_huggingface
from ..templates.prompt_cases import qwen3, qwen3_transformers
from .cases import TOOLS, encoding_of, renderer, template, tokenizer

USER = {"role": "user", "content": "How is the weather?"}
AGAIN = {"role": "user", "content": "And tomorrow?"}


def made(**options: Any) -> unbraid.Renderer:
    return unbraid.renderer(qwen3(), qwen3_huggingface(), "qwen3", **options)


def ids_of(text: str) -> list[int]:
    return list(qwen3_huggingface().encode(text, add_special_tokens=False).ids)


def text_of(ids: Any) -> str:
    return str(qwen3_huggingface().decode(list(ids), skip_special_tokens=False))


def after(rendering: Rendering | None, prompt: Any, sampled: list[int]) -> str:
    """The text of a bridge."""
    assert rendering is not None
    return text_of(rendering.ids[len(prompt) + len(sampled) :])


QUESTION = "<|im_start|>user\nAnd tomorrow?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("sampled", "bridge"),
    [
        ("Sunny.<|im_end|>", "\n"),
        ("Sunny.<|endoftext|>", "\n"),
        ("Sun", "<|im_end|>\n"),
        ("", "<|im_end|>\n"),
        ('<tool_call>\n{"name": "get_wea', "<|im_end|>\n"),
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": <|im_end|>', "\n"),
        ("<|im_end|>", "\n"),
    ],
)
def test_a_turn_is_ended_once(sampled: str, bridge: str) -> None:
    prompt, ids = made().render([USER]), ids_of(sampled)
    assert after(made().extend(prompt, ids, [AGAIN]), prompt, ids) == bridge + QUESTION
    assert after(made().extend(prompt.ids, ids, [AGAIN]), prompt, ids) == bridge + QUESTION


def test_a_token_of_the_next_message_ends_a_turn() -> None:
    """GLM's models stop at the token that the next message begins with."""
    glm = renderer("GLM-4.6", "bytes")
    tokens = tokenizer("GLM-4.6", "bytes")
    prompt = glm.render([USER])
    for stop, follows in (("<|user|>", "\nAnd"), ("</s>", "<|user|>\nAnd"), (None, "<|user|>\nAnd")):
        ids = [*b"Sunny.", *([] if stop is None else [tokens.token_id(stop)])]
        more = glm.extend(prompt, ids, [AGAIN])
        assert more is not None
        written = b"".join(tokens.token_bytes(id) for id in more.ids[len(prompt) + len(ids) :]).decode()
        assert written.startswith(follows)


def test_results_in_another_order() -> None:
    prompt = made().render([USER], TOOLS)
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    ids = ids_of(f"{call}\n{call}<|im_end|>")
    first, second = made().parse(ids, prompt).message.tool_calls
    assert first.id != second.id
    new = [{"role": "tool", "tool_call_id": each.id, "content": each.id} for each in (second, first)]
    written = after(made().extend(prompt, ids, new), prompt, ids)
    assert written.index(second.id) < written.index(first.id)


def test_results_may_name_ids_that_a_server_gave() -> None:
    """They answer the calls in order."""
    named = """{%- for m in messages %}<|im_start|>{{ m.role }}
{% for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}{% if m.role == 'tool' %}{{ m.name }} {{ m.tool_call_id }}: {% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}{% if tools %}{{ tools | tojson }}{% endif %}"""
    one = unbraid.renderer(named, qwen3_huggingface(), "qwen3")
    calls = [f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>' for name in ("now", "then")]
    ids = ids_of("\n".join(calls) + "<|im_end|>")
    prompt = one.render([USER])
    for _ in range(3):
        new = [{"role": "tool", "tool_call_id": f"theirs-{at}", "content": "7"} for at in range(2)]
        more = one.extend(prompt, ids, new, past="sampled")
        assert more is not None
        assert more.given is not None
        assert "now theirs-0: 7" in after(more, prompt, ids)
        assert "then theirs-1: 7" in after(more, prompt, ids)
        assert [call["id"] for call in more.given[1]["tool_calls"]] == ["theirs-0", "theirs-1"]


def test_the_cost_is_that_of_the_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    seen: list[int] = []
    trace = one.builder.trace

    def counted(messages: Any, **more: Any) -> Any:
        seen.append(len(messages))
        return trace(messages, **more)

    monkeypatch.setattr(one.builder, "trace", counted)
    prompt: Rendering | None = one.render([USER])
    monkeypatch.setattr(one.builder, "build", lambda *_, **__: pytest.fail("it renders the conversation"))
    ids = ids_of("Sunny.<|im_end|>")
    for _ in range(30):
        assert prompt is not None
        prompt = one.extend(prompt, ids, [AGAIN])
    assert max(seen) <= 8  # stand-ins, and never the conversation
    count = len(seen)
    assert prompt is not None
    more = one.extend(
        prompt, ids, [{"role": "user", "content": "Something else, and longer than what was said before."}]
    )
    assert more is not None
    assert len(seen) == count  # messages of a kind that came before need no template
    assert prompt is not None
    monkeypatch.undo()
    assert sum(prompt.sampled) == 30 * len(ids)
    assert prompt.messages[-10] == 60


def test_a_prefill_is_not_sampled() -> None:
    one = made()
    prompt = one.render([USER, {"role": "assistant", "content": "It is"}], continue_final_message=True)
    assert text_of(prompt.ids).endswith("It is")
    assert not any(prompt.sampled)
    ids = ids_of(" sunny.<|im_end|>")
    reason = one.obstacle(prompt, ids, [AGAIN])
    assert reason is not None
    assert "wrote '<think>\\n\\n</think>" in reason  # before the last message only
    more = one.extend(prompt, ids, [AGAIN], past="sampled")
    assert more is not None
    assert more.given is not None
    assert [each["content"] for each in more.given] == [USER["content"], "It is sunny.", AGAIN["content"]]
    assert text_of(id for id, sampled in zip(more.ids, more.sampled, strict=True) if sampled) == " sunny.<|im_end|>"
    assert max(more.messages) == 2


def test_speech() -> None:
    """Audio codes are a strand of their own, and stay what they are."""
    tokens = real_tokenizers.step_audio_2("released", "huggingface")
    assert "step-audio-2" in BUILT_IN
    one = unbraid.renderer("step-audio-2", tokens, "step-audio-2")
    prompt = one.render([USER])
    ids = real_tokenizers.encode(tokens, "<tts_start>Hi<audio_1><audio_2> there<audio_3><tts_end><|EOT|>")
    turn = one.parse(ids, prompt)
    assert turn.ended == "stop"
    assert turn.message.speech[0].text == "Hi there"
    assert turn.strands.count("audio") == 3
    more = one.extend(prompt, ids, [AGAIN])
    assert more is not None
    assert more.ids[: len(prompt) + len(ids)] == (*prompt.ids, *ids)


def test_images_are_the_callers() -> None:
    one = made(part_hook=lambda part, where: "<|vision_start|><|image_pad|><|vision_end|>")
    image = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "?"}],
    }
    prompt, ids = one.render([image]), ids_of("A cat.<|im_end|>")
    assert "<|image_pad|><|vision_end|>?" in text_of(prompt.ids)
    assert "<|image_pad|><|vision_end|>?" in after(one.extend(prompt, ids, [image]), prompt, ids)


def test_samples() -> None:
    one = made()
    prompt = one.render([USER])
    first, second = ids_of("<think>\nHm.\n</think>\n\nSunny.<|im_end|>"), ids_of("Rain")
    more = one.extend(prompt, first, [AGAIN], past="sampled")
    assert more is not None
    steps = [TrajectoryStep(prompt, first, [-0.5] * len(first)), TrajectoryStep(more, second, [-0.25] * len(second))]
    sample = one.training_sample(steps, weights={"reasoning": 0.25})
    assert sample.ids == (*more.ids, *second)
    assert sample.prompt_ids == prompt.ids
    assert sample.response_ids == sample.ids[len(prompt) :]
    assert sum(sample.response_mask) == len(first) + len(second)
    assert set(sample.weights) == {0.0, 0.25, 1.0}
    assert sample.weights.count(0.25) == sample.strands.count("reasoning") > 0
    assert sample.logprobs is not None
    assert sample.logprobs.count(-0.5) == len(first)
    arrays = sample.arrays()
    assert arrays["ids"].shape == arrays["weights"].shape == arrays["logprobs"].shape == (len(sample.ids),)
    assert one.training_sample([(prompt.ids, first)]).logprobs is None


def test_errors_say_what_to_do() -> None:
    one = made()
    prompt, ids = one.render([USER]), ids_of("<think>\nHm.\n</think>\n\nSunny.<|im_end|>")
    with pytest.raises(unbraid.UnbraidError, match="needs a prompt that `render` or `extend` made"):
        one.extend(prompt.ids, ids, [AGAIN], past="anew")
    anew = one.extend(prompt, ids, [AGAIN], past="anew")
    assert anew is not None
    assert anew.anew
    with pytest.raises(unbraid.UnbraidError, match="step 1: its prompt does not begin with the ids before it"):
        one.training_sample([(prompt, ids), (anew, ids)])
    with pytest.raises(unbraid.UnbraidError, match="past is"):
        one.extend(prompt, ids, [AGAIN], past="future")  # type: ignore[arg-type]
    with pytest.raises(unbraid.UnbraidError, match=r"messages\[0\].role must be one of"):
        one.extend(prompt, ids, [{"role": ["user"], "content": "a"}])
    with pytest.raises(unbraid.UnbraidError, match=r"messages\[1\].tool_call_id must be a string"):
        one.extend(prompt, ids, [AGAIN, {"role": "tool", "tool_call_id": ["a"], "content": "a"}])
    with pytest.raises(unbraid.UnbraidError, match="at least one step"):
        one.training_sample([])
    with pytest.raises(unbraid.UnbraidError, match="there is no strand 'thoughts'"):
        one.training_sample([(prompt, ids)], weights={"thoughts": 1})
    with pytest.raises(unbraid.UnbraidError, match="2 logprobs for"):
        one.training_sample([TrajectoryStep(prompt, ids, [0.0, 0.0])])
    with pytest.raises(unbraid.UnbraidError, match="workers is how many processes"):
        one.render_many([[USER]], workers=0)
    with pytest.raises(unbraid.UnbraidError, match="needs a tokenizer"):
        unbraid.renderer(qwen3())
    with pytest.raises(unbraid.UnknownFormat, match="could not be verified"):
        unbraid.renderer(template("LFM2-8B-A1B"), tokenizer("LFM2-8B-A1B", "bytes"))


def test_ids_may_be_arrays() -> None:
    one = made()
    prompt, ids = one.render([USER]), ids_of("Sunny.<|im_end|>")
    arrays: Any = (numpy.asarray(prompt.ids), numpy.asarray(ids))
    assert one.parse(arrays[1], arrays[0]) == one.parse(ids, prompt)
    more, same = one.extend(arrays[0], arrays[1], [AGAIN]), one.extend(prompt, ids, [AGAIN])
    assert more is not None
    assert same is not None
    assert more.ids == same.ids
    assert {type(id) for id in more.ids} == {int}
    assert one.training_sample([arrays]) == one.training_sample([(prompt, ids)])
    assert (same.arrays()["sampled"] == numpy.asarray(same.sampled)).all()


def test_batches() -> None:
    tokenizer = real_tokenizers.qwen3_with()  # each process reads it
    one = unbraid.renderer(qwen3(), tokenizer, "qwen3")
    talks = [[{"role": "user", "content": f"Question {number}"}] for number in range(70)]
    apart = list(one.render_many(talks, TOOLS, workers=2, enable_thinking=False))
    together = list(one.render_many(talks, TOOLS, enable_thinking=False))
    assert [(each.ids, each.masks) for each in apart] == [(each.ids, each.masks) for each in together]
    outputs = [(tokenizer.encode(f"Answer {at}<|im_end|>").ids, prompt) for at, prompt in enumerate(together)]
    assert list(one.parse_many(outputs, workers=2)) == list(one.parse_many(outputs))


def test_a_reason_names_the_lines() -> None:
    (reason, *_) = made().reasons
    source = qwen3().source.splitlines()
    line = int(reason.partition(", line ")[2].partition(",")[0])
    assert "content" in source[line - 1]
    assert not made().is_prefix_stable
    assert made().proof["a result after a call after reasoning"] is None


def test_a_loaded_tokenizer_is_enough() -> None:
    one = unbraid.renderer(qwen3_transformers())
    assert one.format.name == "qwen3"
    assert one.render([USER], TOOLS).ids == made().render([USER], TOOLS).ids
    with pytest.raises(unbraid.UnbraidError, match="has no chat_template"):
        unbraid.renderer(real_tokenizers.qwen3_huggingface())


def test_a_folder_is_enough(tmp_path: Path) -> None:
    qwen3_huggingface().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(qwen3().source, encoding="utf-8")
    one = unbraid.renderer(tmp_path)
    assert one.format.name == "qwen3"
    assert one.render([USER]).ids == made().render([USER]).ids
    assert unbraid.renderer(str(tmp_path), qwen3_huggingface()).render([USER]).ids == made().render([USER]).ids
    assert encoding_of("GLM-4.6", "bytes").controls.ids


def test_prompts_with_one_hash_are_told_apart() -> None:
    """Turns are kept by the key of their prompt: prompts of the same length and hash must not share one."""
    keys = PromptKeys(4)
    one, other = (7, -1), (7, -2)
    assert hash(one) == hash(other)
    assert keys.of(one) != keys.of(other) == keys.of(list(other))
    assert keys.of(one) == keys.of(one)
