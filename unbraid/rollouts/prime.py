"""A renderer for the package `renderers`, and so for verifiers and prime-rl, which render with it.

    [renderer]
    name = "custom"
    import_path = "unbraid.rollouts.prime.UnbraidRenderer"

The tokenizer brings its chat template, and that tells all else. `renderers` hands over ids alone where a conversation
goes on; the prompts that were made here are known again by their ids, with their messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from renderers import base  # type: ignore[import-not-found]
from renderers.configs import BaseRendererConfig  # type: ignore[import-not-found]

from ..caching import LruCache
from .loading import renderer
from .renderer import Past
from .values import CallStatus, Messages, Rendering, Turn

_PROMPTS_KEPT = 512
_STATUS: Mapping[CallStatus, str] = {
    "ok": "ok",
    "invalid_json": "invalid_json",
    "malformed": "malformed_structure",
    "unknown": "unknown_tool",
    "cut_off": "unclosed_block",
}


class UnbraidRendererConfig(BaseRendererConfig):  # type: ignore[misc]
    """format: the name of the model's format; None to find it from the chat template.

    With `thinking_retention="all"`, a conversation goes on from what was sampled even where the template would rewrite
    it.
    """

    format: str | None = None
    _internal_fields: ClassVar[frozenset[str]] = frozenset({"format"})


class UnbraidRenderer:
    """Messages to ids and back by the tokenizer's own chat template."""

    config_class = UnbraidRendererConfig

    def __init__(self, tokenizer: Any, config: Any = None) -> None:
        self.config = config or UnbraidRendererConfig()
        self.tokenizer = tokenizer
        self._renderer = renderer(tokenizer, format=self.config.format)
        self._past: Past = "sampled" if self.config.thinking_retention == "all" else "template"
        self._prompts: LruCache[tuple[int, ...], Rendering] = LruCache(_PROMPTS_KEPT)

    @property
    def is_prefix_stable(self) -> bool:
        return self._renderer.is_prefix_stable

    def render(self, messages: Messages, *, tools: Any = None, add_generation_prompt: bool = False) -> Any:
        rendering = self._renderer.render(messages, _wrapped(tools), add_generation_prompt=add_generation_prompt)
        self._prompts[rendering.ids] = rendering
        return base.RenderedTokens(
            token_ids=list(rendering.ids),
            message_indices=list(rendering.messages),
            sampled_mask=list(rendering.sampled),
            is_content=list(rendering.content),
            message_roles=[message["role"] for message in messages],
            message_tool_names=base.extract_message_tool_names(list(messages)),
        )

    def render_ids(self, messages: Messages, *, tools: Any = None, add_generation_prompt: bool = False) -> list[int]:
        rendering = self._renderer.render(messages, _wrapped(tools), add_generation_prompt=add_generation_prompt)
        self._prompts[rendering.ids] = rendering
        return list(rendering.ids)

    def parse_response(
        self, token_ids: Sequence[int], *, tools: Any = None, prompt_ids: Sequence[int] | None = None
    ) -> Any:
        prompt = tuple(prompt_ids) if prompt_ids else None
        turn = self._renderer.parse(list(token_ids), prompt, tools=_wrapped(tools))
        message = turn.settled
        return base.ParsedResponse(
            content=message.content,
            reasoning_content=message.reasoning or None,
            tool_calls=[self._attempt(turn, number, token_ids) for number in range(len(turn.calls))],
            reasoning_complete=turn.reasoning_closed is not False,
        )

    def _attempt(self, turn: Turn, number: int, ids: Sequence[int]) -> Any:
        attempt = turn.calls[number]
        call = None if attempt.index is None else turn.message.tool_calls[attempt.index]
        arguments: Any = None if call is None else call.arguments
        return base.ParsedToolCall(
            raw=self.tokenizer.decode(list(ids[attempt.begin : attempt.end])),
            name=attempt.name or None,
            arguments=json.loads(arguments) if arguments and call is not None and call.complete else arguments,
            token_span=(attempt.begin, attempt.end),
            status=base.ToolCallParseStatus(_STATUS[attempt.status]),
            id=None if call is None else call.id,
        )

    def get_stop_token_ids(self) -> list[int]:
        return list(self._renderer.stop_ids)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Messages,
        *,
        tools: Any = None,
    ) -> Any:
        """None where the template would write something else; then everything is rendered anew."""
        ids = tuple(previous_prompt_ids)
        prompt = self._prompts.get(ids) or ids
        more = self._renderer.extend(
            prompt, list(previous_completion_ids), new_messages, tools=_wrapped(tools), past=self._past
        )
        if more is None:
            return None
        self._prompts[more.ids] = more
        before = len(ids) + len(previous_completion_ids)
        first = len(more.given) - len(new_messages) if more.given is not None else 0
        numbers = [number - first if number >= first else -1 for number in more.messages[before:]]
        return base.RenderedTokens(
            token_ids=list(more.ids),
            message_indices=[-1] * before + numbers,
            sampled_mask=[False] * len(more.ids),
            is_content=[False] * before + list(more.content[before:]),
            message_roles=[message["role"] for message in new_messages],
            message_tool_names=base.extract_message_tool_names(list(new_messages)),
        )


def _wrapped(tools: Any) -> list[Any] | None:
    """Tools as chat templates know them."""
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools or ()] or None
