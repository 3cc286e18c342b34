"""Capabilities of a chat template: which roles and fields it reads, and in which form it wants them.

Templates do not declare this. One crashes on a content of `None`, the next on an empty string; one wants arguments as
an object, another as JSON text. `capability_probe` finds out by rendering, and the value here adapts messages
accordingly. llama.cpp's minja keeps the same list under the name `chat_template_caps`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """What one template takes."""

    content_parts: bool = False
    """It wants content as a list of parts, not as a string."""
    system_role: bool = True
    later_system: bool = True
    """It shows every system message, and not only the first."""
    system_before_result: bool = True
    """It shows the system message also where the result of a tool comes last."""
    developer_role: bool = False
    tools: bool = False
    """It tells the model about tools."""
    tool_calls: bool = False
    """It shows the calls of earlier turns."""
    tool_results: bool = False
    """It shows the results of those calls."""
    arguments: Literal["object", "text"] = "object"
    """The form in which it wants the arguments of a call."""
    empty_content: Literal[""] | None = ""
    """The content of a message that has only calls."""
    repeated_roles: bool = True
    """It shows messages of the same role that follow each other."""
    user_after_result: bool = True
    """It shows what the user says right after a result."""
    short_call_ids: bool = False
    """Ids of calls must be 9 letters or digits (Mistral)."""

    def adapt(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message of the form that `prompt.messages.MessageReader` returns, as this template wants it."""
        message = dict(message)
        if message["role"] == "developer" and not self.developer_role:
            message["role"] = "system"
        if message.get("tool_calls"):
            message["tool_calls"] = [self._adapt_call(call) for call in message["tool_calls"]]
            message["content"] = message["content"] or self.empty_content
        if self.short_call_ids and message.get("tool_call_id"):
            message["tool_call_id"] = short_call_id(message["tool_call_id"])
        if self.content_parts and message["content"] is not None:
            message["content"] = [{"type": "text", "text": message["content"]}]
        return message

    def _adapt_call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = dict(call["function"])
        if self.arguments == "object":
            # A model may have written invalid JSON. Then the template shows the text as it was.
            with suppress(ValueError, RecursionError):
                function["arguments"] = json.loads(function["arguments"])
        return {**call, "id": short_call_id(call["id"]) if self.short_call_ids else call["id"], "function": function}


def short_call_id(id: str) -> str:
    """An id of nine letters or digits, as Mistral's templates require. Equal ids stay equal."""
    if re.fullmatch("[a-zA-Z0-9]{9}", id):
        return id
    digest = base64.b32encode(hashlib.sha256(id.encode("utf-8", "replace")).digest())
    return digest[:9].decode()
