"""Chats that go on from token ids, for those who train on what was sampled.

The request has the ids so far and only the new messages. The next prompt begins with exactly those ids, as
`rollouts.Renderer.extend` makes it: nothing that was sampled is rendered again. Where the template would have rewritten
it, the request is refused with the renderer's reason, unless it says that what was sampled is to stand (`past`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...core.grammar import Format
from ...rollouts import Renderer, TrainingMasks
from ...templates import PromptBuilder
from ..errors import ApiError
from ..model import Model
from .task import ChatTask, SoFar

_SOMEBODY = [{"role": "user", "content": "a"}]


def extended(model: Model, task: ChatTask, so_far: SoFar) -> tuple[int, ...]:
    """The prompt of a task that goes on from ids."""
    if task.speak or task.continue_final_message or not task.add_generation_prompt:
        wrong = "continue_final_message" if task.continue_final_message else "add_generation_prompt"
        wrong = "tts_output" if task.speak else wrong
        raise ApiError(
            400, f"{wrong}: a chat that goes on from prompt_token_ids ends with the model's turn", param=wrong
        )
    if not task.messages:
        message = "messages: give the new ones, which come after what was sampled"
        raise ApiError(400, message, param="messages")
    renderer = renderer_of(model)
    _check(model, so_far.prompt, "prompt_token_ids")
    _check(model, so_far.sampled or (), "token_ids")
    prompt, sampled = _cut(model, task, so_far)
    tools = None if task.tool_choice == "none" else list(task.tools)
    variables: dict[str, Any] = {"tools": tools, **task.template_kwargs}
    rendering = renderer.extend(prompt, sampled, task.messages, past=so_far.past, **variables)
    if rendering is not None:
        return rendering.ids
    instead = "Send all messages without prompt_token_ids"
    if (
        so_far.past == "template"
        and renderer.obstacle(prompt, sampled, task.messages, past="sampled", **variables) is None
    ):
        instead += ', or `"past": "sampled"` to go on from what was sampled all the same'
    reason = renderer.obstacle(prompt, sampled, task.messages, past=so_far.past, **variables)
    raise ApiError(
        400,
        f"prompt_token_ids: the chat template would not go on from these ids: {reason}. {instead}",
        param="prompt_token_ids",
        code="template_rewrites_the_past",
    )


def masks_of(model: Model, task: ChatTask, prompt: Sequence[int]) -> TrainingMasks:
    """Two masks for the ids of a prompt: the message that each id belongs to, and whether it was sampled or is
    content."""
    renderer = renderer_of(model)
    tools = None if task.tool_choice == "none" else list(task.tools)
    if task.so_far is not None:
        before, sampled = _cut(model, task, task.so_far)
        rendering = renderer.extend(
            before, sampled, task.messages, tools=tools, past=task.so_far.past, **dict(task.template_kwargs)
        )
    else:
        rendering = renderer.render(
            task.messages,
            tools,
            add_generation_prompt=task.add_generation_prompt,
            continue_final_message=task.continue_final_message,
            **dict(task.template_kwargs),
        )
    if rendering is None or rendering.ids != tuple(prompt):
        message = (
            "return_masks: what each token is cannot be told of this prompt; leave documents, speech and budgets out"
        )
        raise ApiError(400, message, param="return_masks")
    return rendering.masks


def renderer_of(model: Model) -> Renderer:
    if model.encoder is None:
        raise ApiError(400, "only the engine knows the model's tokens: start the server with --tokenizer")
    return _renderer(model.chat_builder(), model.format)


@lru_cache(maxsize=16)
def _renderer(builder: PromptBuilder, format: Format) -> Renderer:
    """Made once: it keeps what it has proven of the template."""
    return Renderer(builder, format)


def _check(model: Model, ids: Sequence[int], field: str) -> None:
    vocabulary = model.vocabulary
    assert vocabulary is not None
    for id in dict.fromkeys(ids):
        if vocabulary.token_bytes(id) is None:
            raise ApiError(400, f"{field}: {id} is no token of the model", param=field)


def _cut(model: Model, task: ChatTask, so_far: SoFar) -> tuple[Sequence[int], Sequence[int]]:
    """Split the ids so far into the last prompt and what was sampled after it."""
    if so_far.sampled is not None:
        return so_far.prompt, so_far.sampled
    opening = _generation_prompt(model, task.template_kwargs)
    ids = list(so_far.prompt)
    for at in range(len(ids) - len(opening), -1, -1):
        if opening and ids[at : at + len(opening)] == opening:
            return ids[: at + len(opening)], ids[at + len(opening) :]
    raise ApiError(
        400,
        "prompt_token_ids: it cannot be told where the model's last turn begins; give its ids apart, as `token_ids`",
        param="prompt_token_ids",
    )


def _generation_prompt(model: Model, variables: Mapping[str, Any]) -> list[int]:
    """What the template writes where the model's turn begins."""
    build = model.chat_builder().build
    whole, without = (
        build(_SOMEBODY, add_generation_prompt=each, template_kwargs=dict(variables)).ids or ()
        for each in (True, False)
    )
    return list(whole[len(without) :]) if whole[: len(without)] == without else []
