"""Beside `renderers` 0.1.12, model by model: the same ids, the same masks, the same bridges, or a decision why not.

It runs in an environment of its own, in the tests' cache (`peer_renderers.py`). The vocabulary is Qwen's with the
tokens of the other models, whose own are in no package. Where the two differ, the vendor's template decides, as Hugging
Face renders and tokenizes it; each difference is written down here. Not compared: `gpt-oss` there needs a vocabulary
from the network, `gemma4` and `deepseek-v4` tokens that their templates here do not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid.templates import ChatTemplate

from ..support import real_tokenizers
from ..templates.prompt_models import template_source
from .cases import TEMPLATES, TOOLS, format_of, tokens_of
from .environments import answers, python_with

pytestmark = pytest.mark.slow
REQUIREMENTS = ("renderers==0.1.12", "tokenizers", "httpx", "pydantic", "jinja2")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
MORE_TOKENS = (
    "[gMASK]",
    "<sop>",
    "〈|EOS|〉",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "]~!b[",
    *DEEPSEEK,
)


@dataclass(frozen=True)
class Model:
    """A model that both know."""

    template: str
    bos: str = ""
    eos: str = ""


MODELS = {
    "qwen3": Model("Qwen-Qwen3-0.6B"),
    "llama-3": Model("meta-llama-Llama-3.1-8B-Instruct", "<|begin_of_text|>", "<|eot_id|>"),
    "glm-4.5": Model("GLM-4.6"),
    "minimax-m2": Model("MiniMax-M2"),
    "kimi-k2": Model("moonshotai-Kimi-K2"),
    "deepseek-r1": Model("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", *DEEPSEEK),
    "laguna-xs.2": Model("poolside-Laguna-XS.2", "〈|EOS|〉", "</assistant>"),
}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "How is the weather?"}
AGAIN = {"role": "user", "content": "And tomorrow?"}
ANSWER = {"role": "assistant", "content": "Sunny."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "sunny all day"}
REASONED: dict[str, Any] = {"reasoning_content": "They ask."}
CASES: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "a question": ([SYSTEM, USER], None),
    "no system message": ([USER], None),
    "tools": ([SYSTEM, USER], TOOLS),
    "an answer": ([SYSTEM, USER, ANSWER, AGAIN], None),
    "reasoning": ([SYSTEM, USER, {**ANSWER, **REASONED}, AGAIN], None),
    "a call": ([SYSTEM, USER, CALL, RESULT], TOOLS),
    "a call after reasoning": ([SYSTEM, USER, {**CALL, **REASONED}, RESULT], TOOLS),
    "an answer after a call": ([SYSTEM, USER, CALL, RESULT, ANSWER, AGAIN], TOOLS),
}
WITH_TOOLS = ("tools", "a call", "a call after reasoning", "an answer after a call")
OTHER_IDS = {
    **{
        ("kimi-k2", case): "it sorts the keys of the tools; the template writes them with `tojson`, in their order"
        for case in WITH_TOOLS
    },
    ("kimi-k2", "no system message"): "it has the system message of a later revision of the template",
    ("minimax-m2", "no system message"): "it has the system message of a later revision (M2.5)",
    **{
        ("deepseek-r1", case): "the template has no place for tools: it leaves them out, we describe them to the model"
        for case in WITH_TOOLS
    },
    **{
        (
            "laguna-xs.2",
            case,
        ): "it encodes the text in pieces; Hugging Face encodes what the template renders as a whole"
        for case in CASES
    },
}
"""Where the ids differ, and why ours are right."""
OTHER_MASKS = {
    **{
        ("glm-4.5", case): "the generation prompt is `<|assistant|>`: the model writes the line break after it itself"
        for case in CASES
    },
    **{
        ("minimax-m2", case): "one token has the last line break of the generation prompt and the first of the turn"
        for case in ("a call", "an answer after a call")
    },
    ("minimax-m2", "a call after reasoning"): "the generation prompt ends with `<think>`: the model does not write it",
}
"""Where the masks differ, and why ours are right."""
OTHER_BRIDGES = {
    (
        "laguna-xs.2",
        "an answer",
    ): "the template writes a line break after `</assistant>`; there it only comes if cut off"
}


@cache
def vocabulary() -> Any:
    tokens = [text for name in TEMPLATES for text in tokens_of(name)]
    return real_tokenizers.qwen3_with(*dict.fromkeys([*tokens, *MORE_TOKENS]))


@cache
def ours(name: str) -> unbraid.Renderer:
    model = MODELS[name]
    template = ChatTemplate(
        template_source(model.template), bos_token=model.bos, eos_token=model.eos, name=model.template
    )
    return unbraid.renderer(template, vocabulary(), format_of(model.template))


def theirs(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    return answers(python_with(*REQUIREMENTS), "peer_renderers.py", vocabulary(), jobs, folder)


@pytest.mark.parametrize("name", MODELS)
def test_renderings_are_the_same(name: str, tmp_path: Path) -> None:
    jobs = [{"renderer": name, "messages": messages, "tools": tools} for messages, tools in CASES.values()]
    for (case, (messages, tools)), found in zip(CASES.items(), theirs(jobs, tmp_path), strict=True):
        assert "error" not in found, (case, found)
        rendering = ours(name).render(messages, tools)
        same = list(rendering.ids) == found["ids"]
        assert same != ((name, case) in OTHER_IDS), case
        if same and any(rendering.sampled):
            assert (list(rendering.sampled) == found["sampled"]) != ((name, case) in OTHER_MASKS), case


@pytest.mark.parametrize("name", MODELS)
def test_bridges_are_the_same(name: str, tmp_path: Path) -> None:
    """Where both go on. Where one of the two refuses, ours says why, or theirs is the stricter."""
    made, text = ours(name), vocabulary()
    stop = made.stop_ids[0]
    turns = {"an answer": text.encode("Sunny.").ids, "cut off": text.encode("Sun").ids}
    prompt = made.render([SYSTEM, USER])
    jobs, cases = [], []
    for case, ids in turns.items():
        sampled = [*ids, *([stop] if case == "an answer" else [])]
        cases.append(sampled)
        jobs.append(
            {"renderer": name, "prompt": list(prompt.ids), "sampled": sampled, "messages": [AGAIN], "tools": None}
        )
    for case, sampled, found in zip(turns, cases, theirs(jobs, tmp_path), strict=True):
        more = made.extend(prompt, sampled, [AGAIN], past="sampled")
        assert more is not None
        assert "error" not in found, found
        if found["ids"] is not None:
            assert (list(more.ids) == found["ids"]) != ((name, case) in OTHER_BRIDGES)
