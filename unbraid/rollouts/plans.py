"""Going on from ids as it was done before for a turn and new messages of the same kind: the short way.

What is worked out for a kind of turn and of new messages (`extension.Precedent`) holds for all that the template
cannot tell apart. Most turns and messages are plain: no word in them switches the template, no call looks like markup,
each result answers a call. Then few fields say which kind it is, and their texts are all that is put into the recipe of
what follows. A plan has what holds for such a kind. Where anything is not plain, or a guard of the recipe does not
hold, or the prompt may have words in it that matter, there is no plan, and the long way is gone.
`tests/rollouts/test_plans.py` holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.message import Text, ToolCall
from ..templates.capabilities import TemplateCapabilities
from ..templates.control_tokens import sanitize_text
from .stand_ins import StandIns
from .values import Messages, Turn

_FIELDS = frozenset({"role", "content", "name", "tool_call_id"})
Kind = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """A turn and new messages that are plain."""

    kind: Kind
    """Equal for those that the template cannot tell apart."""
    ids: tuple[str, ...]
    """Of the calls of the turn."""
    texts: tuple[tuple[str, str | None], ...]
    """Of each new message the content, and the id of the call that it answers."""

    def inputs(self, capabilities: TemplateCapabilities) -> list[str]:
        """What a recipe takes (`symbolic_text.places`)."""
        inputs = [capabilities.call_id(id) for id in self.ids]
        for content, id in self.texts:
            inputs += [content] if id is None else [content, capabilities.call_id(id)]
        return inputs


def plain(turn: Turn, new: Messages, turns: StandIns, messages: StandIns) -> Plain | None:
    """The turn and the new messages, if they are plain.

    turns, messages: the stand-ins of turns, and of other messages.
    """
    kinds: list[Any] = [turn.stop_id]
    ids: list[str] = []
    strands: set[str] = set()
    for part in turn.message.parts:
        if isinstance(part, Text):
            around = turns.text(part.text)
            keeps = isinstance(around, str) and bool(around.strip())
            if keeps or part.strand in strands or sanitize_text(part.text) != part.text:
                return None
            strands.add(part.strand)
            kinds.append((part.strand, around))
        elif isinstance(part, ToolCall) and part.complete and turns.is_plain_call(part.to_openai()):
            ids.append(part.id)
            kinds.append(part.name)
        else:
            return None
    if len(set(ids)) < len(ids):
        return None
    texts: list[tuple[str, str | None]] = []
    for message in new:
        if type(message) is not dict or not message.keys() <= _FIELDS:
            return None
        role, content, name, id = (message.get(key) for key in ("role", "content", "name", "tool_call_id"))
        if role not in ("user", "tool") or type(content) is not str or sanitize_text(content) != content:
            return None
        around = messages.text(content)
        answers = role == "tool"
        if isinstance(around, str) or (id in ids) != answers or ("tool_call_id" in message) != answers:
            return None
        if "name" in message and (type(name) is not str or sanitize_text(name) != name):
            return None
        kinds.append((role, around, name, ids.index(id) if id is not None and answers else None))
        texts.append((content, id))
    return Plain(tuple(kinds), tuple(ids), tuple(texts)) if texts else None
