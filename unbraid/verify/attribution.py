"""Whose fault it is: the model's, the parser's, the template's or the server's.

What the model wrote decides between the model and the parser. Our parser reads it too. If its reply has the same fault,
the model wrote it so; if not, the server's parser made it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.grammar import Format
from ..core.message import Message
from ..parsing import parse
from .checks import Fault, check_reply
from .exchange import ObservedCall, ObservedReply, VerifyExchange, json_of
from .server import VerifiedServer

if TYPE_CHECKING:
    from ..rollouts import Renderer

UNKNOWN = "model or parser"
"""Whose fault it is, where the server does not show what the model wrote."""

_WORD = re.compile(r"\w+")
_ALWAYS: Mapping[str, str] = {
    "protocol": "server",
    "usage_wrong": "server",
    "error_undocumented": "server",
    "server_error": "server",
    "history_refused": "template",
    "prompt_differs": "template",
    "tools_unseen": "template or server",
    "choice_ignored": "server",
    "parallel_ignored": "server",
    "stop_ignored": "server",
    "length_ignored": "server",
    "cut_but_complete": "parser",
    "stream_differs": "parser",
    "reply_differs": "parser",
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

    def blame(self, fault: Fault, exchange: VerifyExchange, server: VerifiedServer | None = None) -> str:
        """Whose fault it is, in a word or two. server: asked for raw text where the exchange has no ids."""
        if fault.kind in _ALWAYS:
            return _ALWAYS[fault.kind]
        same = self._same(fault, exchange)
        if same is None and server is not None:
            again = self._asked_again(fault, exchange, server)
            same = None if again is None else self._same(fault, again)
        strict = fault.kind == "strict_ignored"  # then the server has let the model write it
        if same is None:
            return "server or parser" if strict else UNKNOWN
        return ("server" if strict else "model") if same else "parser"

    def _same(self, fault: Fault, exchange: VerifyExchange) -> bool | None:
        """Whether our reading of what the model wrote has the same fault; None: nobody shows what it wrote."""
        request, reply = exchange.request, exchange.reply
        # With the request's tools, a call to any other is text.
        message = self._message(exchange, None if fault.kind == "unknown_name" else _chat_tools(exchange))
        if message is None:
            return None
        ours = _as_reply(message, reply)
        if fault.kind == "value_changed":
            return [call.arguments for call in ours.calls] == [call.arguments for call in reply.calls]
        if fault.kind == "reasoning_mixed" or request.schema is not None:
            return (ours.content.strip(), ours.reasoning.strip()) == (reply.content.strip(), reply.reasoning.strip())
        # Arguments that are no JSON object are wrong as they were written, whatever a parser makes of them.
        kinds = {fault.kind} | ({"invalid_json"} if fault.kind in ("schema_mismatch", "strict_ignored") else set())
        return any(each.kind in kinds for each in check_reply(ours, request))

    def _message(self, exchange: VerifyExchange, tools: list[dict[str, Any]] | None) -> Message | None:
        """What the model wrote, as our parser reads it. A format without calls, which is that of a template without a
        place for tools, says nothing of a reply that has some."""
        reply = exchange.reply
        format = self.format or (None if self.renderer is None else self.renderer.format)
        if format is None or (reply.calls and format.tools is None):
            return None
        if self.renderer is not None and reply.token_ids is not None:
            return self.renderer.parse(reply.token_ids, reply.prompt_ids, tools=tools).message
        if exchange.written is not None:
            return parse(format, exchange.written, tools=tools, prompt=exchange.before)
        return None

    def _asked_again(self, fault: Fault, exchange: VerifyExchange, server: VerifiedServer) -> VerifyExchange | None:
        """The request once more at temperature 0, and what the model writes after the prompt by itself, where both have
        the same words. What a constraint made the model write cannot be had so."""
        request = exchange.request
        if self.renderer is None or server.shows_ids or request.choice not in ("auto", "none") or request.schema:
            return None
        if "temperature" in server.refused:
            return None
        greedy = replace(request, raw={**(request.raw or {}), "temperature": 0})
        again = server.ask(greedy, stream=exchange.streamed)
        if not any(each.kind == fault.kind for each in check_reply(again.reply, request)):
            return None
        prompt = self.renderer.render(again.body["messages"], _chat_tools(exchange))
        output = server.completed(prompt.ids, request.max_tokens)
        said = " ".join((again.reply.content, again.reply.reasoning, *(call.arguments for call in again.reply.calls)))
        if output is None or not set(_WORD.findall(said)) <= set(_WORD.findall(output)):
            return None
        before = b"".join(self.renderer.vocabulary.token_bytes(id) or b"" for id in prompt.ids[-64:])
        return replace(again, written=output, before=before.decode("utf-8", "replace"))

    def difference(self, exchange: VerifyExchange) -> Fault | None:
        """How a reply differs from what the model wrote. Tastes differ where it was cut off, or a call forced."""
        request, reply = exchange.request, exchange.reply
        if reply.status != 200 or reply.error or reply.ending == "length" or request.stop or request.choice != "auto":
            return None
        message = self._message(exchange, _chat_tools(exchange))
        if message is None or any(not call.complete for call in message.tool_calls):
            return None
        ours, theirs = _said(_as_reply(message, reply)), _said(reply)
        return None if ours == theirs else Fault("reply_differs", f"the model wrote {ours!r}; the reply is {theirs!r}")

    def prompt_fault(self, exchange: VerifyExchange) -> Fault | None:
        """How the prompt differs from what the model's template says. Where that has no place for tools, a server may
        leave them out, or describe them as we do."""
        ids = exchange.reply.prompt_ids
        if self.renderer is None or ids is None:
            return None
        rendering = self.renderer.render(exchange.body["messages"], _chat_tools(exchange))
        if rendering.ids != ids and rendering.notes:
            rendering = self.renderer.render(exchange.body["messages"])
        due = rendering.ids
        if due == ids:
            return None
        at = next((at for at, (one, other) in enumerate(zip(due, ids, strict=False)) if one != other), len(ids))
        return Fault(
            "prompt_differs",
            f"{len(ids)} tokens for {len(due)}; from token {at} on {ids[at : at + 8]} for {due[at : at + 8]}",
        )


def _said(reply: ObservedReply) -> tuple[object, ...]:
    """A reply without its whitespace and the spelling of its JSON."""
    calls = [(call.name, _value(call.arguments)) for call in reply.calls]
    return reply.content.split(), reply.reasoning.split(), calls


def _value(arguments: str) -> Any:
    try:
        return json_of(arguments)
    except ValueError:
        return arguments


def _chat_tools(exchange: VerifyExchange) -> list[dict[str, Any]] | None:
    return [{"type": "function", "function": dict(tool)} for tool in exchange.request.tools] or None


def _as_reply(message: Message, reply: ObservedReply) -> ObservedReply:
    calls = (ObservedCall(str(at), call.name, call.arguments) for at, call in enumerate(message.tool_calls))
    return replace(reply, content=message.content, reasoning=message.reasoning, calls=tuple(calls), faults=())
