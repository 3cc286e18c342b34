"""The chunks that a client of the server would get for an output, written by the server's own writers."""

from __future__ import annotations

from typing import Any, cast

from ...core.tools import Tools
from ...errors import Place, UnbraidError
from ..api.chat_reply import ChatChunks
from ..api.replies import Head
from ..generation.updates import Outgoing, Update, Usage
from ..messages.reply import MessageEvents, MessageHead
from ..responses.tools import ShownTools
from ..responses.writer import EchoedFields, ResponseWriter
from ..storage.seal import Seal
from .question import Question

Writer = ChatChunks | ResponseWriter | MessageEvents
_DONE = {"openai": b"data: [DONE]\n\n"}
"""The last frame."""


def as_chunks(question: Question) -> dict[str, Any]:
    """The frames of one dialect, step by step. Those that come before all else stand with the first step."""
    dialect = question.text("dialect")
    writer = _writer(dialect, question.format.name, question.tools or Tools([]))
    outgoing = Outgoing()
    first = writer.first()
    *events, last = (outgoing.passed(step) for step in question.steps(question.pieces, markup=False))
    steps = [writer.update(Update(0, step)) for step in events]
    end = Update(0, outgoing.last(last, cut_off=not question.ended), end=outgoing.end if question.ended else "length")
    steps.append(writer.update(end) + writer.last() + _DONE.get(dialect, b""))
    steps[0] = first + steps[0]
    return {"steps": [[frame for frame in step.decode().split("\n\n") if frame] for step in steps]}


def _writer(dialect: str, model: str, tools: Tools) -> Writer:
    custom = [name for name in tools if tools.custom(name) is not None]
    if dialect == "openai":
        keys = ("reasoning_content",)
        return ChatChunks(Head(model), 1, keys, usage=None, with_logprobs=False, custom_tools=frozenset(custom))
    if dialect == "responses":
        shown = ShownTools([({"type": "custom", "name": name}, Place("tools")) for name in custom])
        return ResponseWriter(model, cast(EchoedFields, {}), shown, Usage())  # there is no request to repeat
    if dialect == "anthropic":
        return MessageEvents(MessageHead(model, Seal(), ""), Usage())
    raise UnbraidError(f"no dialect {dialect!r}: there are openai, responses and anthropic", field="dialect")
