"""Whose fault it is: the model's, the parser's, the template's or the server's.

What the model wrote decides between the model and the parser. Our parser reads it too. If its reply has the same fault,
the model wrote it so; if not, the server's parser made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.grammar import Format
from ..core.message import Message
from ..parsing import parse
from .checks import Fault, check_reply
from .exchange import ObservedCall, ObservedReply, VerifyExchange

if TYPE_CHECKING:
    from ..rollouts import Renderer

UNKNOWN = "model or parser"
"""Whose fault it is, where the server does not show what the model wrote."""

_ALWAYS: Mapping[str, str] = {
    "protocol": "server",
    "usage_wrong": "server",
    "error_undocumented": "server",
    "server_error": "server",
    "history_refused": "template",
    "prompt_differs": "template",
    "choice_ignored": "server",
    "parallel_ignored": "server",
    "stop_ignored": "server",
    "length_ignored": "server",
    "cut_but_complete": "parser",
    "stream_differs": "parser",
    "reasoning_mixed": "parser",
}
"""Faults that only one part can be guilty of."""


class Witness:
    """Reads what the model wrote a second time.

    format: what the model writes, for servers that spell out ids (`/detokenize`).
    renderer: the model's own template and tokenizer; then ids are enough, and prompts are compared too.
    """

    def __init__(self, format: Format | None = None, renderer: Renderer | None = None) -> None:
        self.format = format
        self.renderer = renderer

    @property
    def can_read(self) -> bool:
        return self.format is not None or self.renderer is not None

    def blame(self, fault: Fault, exchange: VerifyExchange) -> str:
        """Whose fault it is, in a word or two."""
        if fault.kind in _ALWAYS:
            return _ALWAYS[fault.kind]
        # With the request's tools, a call to any other is text.
        message = self._message(exchange, None if fault.kind == "unknown_name" else _chat_tools(exchange))
        if message is None:
            return UNKNOWN
        ours = _as_reply(message, exchange.reply)
        if fault.kind == "value_changed":
            same = [call.arguments for call in ours.calls] == [call.arguments for call in exchange.reply.calls]
        else:
            same = any(each.kind == fault.kind for each in check_reply(ours, exchange.request.tools))
        return "model" if same else "parser"

    def _message(self, exchange: VerifyExchange, tools: list[dict[str, Any]] | None) -> Message | None:
        """What the model wrote, as our parser reads it."""
        reply = exchange.reply
        if self.renderer is not None and reply.token_ids is not None:
            return self.renderer.parse(reply.token_ids, reply.prompt_ids, tools=tools).message
        if self.format is not None and exchange.written is not None:
            return parse(self.format, exchange.written, tools=tools)
        return None

    def prompt_fault(self, exchange: VerifyExchange) -> Fault | None:
        """How the prompt differs from what the model's template says."""
        ids = exchange.reply.prompt_ids
        if self.renderer is None or ids is None:
            return None
        due = self.renderer.render(exchange.body["messages"], _chat_tools(exchange)).ids
        if due == ids:
            return None
        at = next((at for at, (one, other) in enumerate(zip(due, ids, strict=False)) if one != other), len(ids))
        return Fault(
            "prompt_differs",
            f"{len(ids)} tokens for {len(due)}; from token {at} on {ids[at : at + 8]} for {due[at : at + 8]}",
        )


def _chat_tools(exchange: VerifyExchange) -> list[dict[str, Any]] | None:
    return [{"type": "function", "function": dict(tool)} for tool in exchange.request.tools] or None


def _as_reply(message: Message, reply: ObservedReply) -> ObservedReply:
    calls = (ObservedCall(str(at), call.name, call.arguments) for at, call in enumerate(message.tool_calls))
    return replace(reply, content=message.content, reasoning=message.reasoning, calls=tuple(calls), faults=())
