"""Capabilities of a chat template: which roles and fields it reads, and in which form it wants them.

Templates do not declare this. One crashes on a content of `None`, the next on an empty string; one wants arguments as
an object, another as JSON text. `CapabilityProbe` finds out by rendering a few messages in each form, and
`TemplateCapabilities` adapts messages accordingly. llama.cpp's minja keeps the same list as `chat_template_caps`.

Nothing is read off the source of a template. The probe words (`Qz…`) occur in no template, so a word in the output came
from the message. The forms are tried in a fixed order and the first of the best wins, so the plainest form is
preferred. About 25 short renderings are made, once for each loaded template. What a template makes of whole
conversations is seen by `prompt.bridges`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import Any, Literal

from .control_tokens import NO_CONTROL_TOKENS
from .errors import TemplateError
from .template import ChatTemplate, CompiledTemplate


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
    long_call_ids: bool = False
    """Ids of calls must have 9 characters at least."""
    tools_always: bool = False
    """It wants a list of tools also where there are none."""
    described_tools: bool = False
    """It takes only tools that have a description and parameters."""
    variables: tuple[str, ...] = ()
    """Variables that it cannot do without. `functions` are the tools, as text."""

    def shown_tools(self, tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        """The variables that tell it the tools, in the form of `prompt.messages.tool_definitions`."""
        if tools and self.described_tools:
            tools = [{**tool, "function": _described(tool["function"])} for tool in tools]
        values: dict[str, Any] = dict.fromkeys(self.variables, "")
        if "functions" in values:
            values["functions"] = json.dumps(tools or [], ensure_ascii=False, indent=4)
        if "datetime" in values:
            values["datetime"] = datetime.now().astimezone().strftime("%Y-%m-%d")
        return {**values, "tools": tools or ([] if self.tools_always else None)}

    def adapt(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message of the form that `prompt.messages.MessageReader` returns, as this template wants it."""
        message = dict(message)
        if message["role"] == "developer" and not self.developer_role:
            message["role"] = "system"
        if message.get("tool_calls"):
            message["tool_calls"] = [self._adapt_call(call) for call in message["tool_calls"]]
            message["content"] = message["content"] or self.empty_content
        if message.get("tool_call_id"):
            message["tool_call_id"] = self.call_id(message["tool_call_id"])
        if self.content_parts and message["content"] is not None:
            message["content"] = [{"type": "text", "text": message["content"]}]
        return message

    def _adapt_call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = dict(call["function"])
        if self.arguments == "object":
            # A model may have written invalid JSON. Then the template shows the text as it was.
            with suppress(ValueError, RecursionError):
                function["arguments"] = json.loads(function["arguments"])
        return {**call, "id": self.call_id(call["id"]), "function": function}

    def call_id(self, id: str) -> str:
        """The id of a call as this template takes it."""
        return short_call_id(id) if self.short_call_ids or (self.long_call_ids and len(id) < _LONG_ID) else id


def _described(function: dict[str, Any]) -> dict[str, Any]:
    """A function with all that a definition may leave out."""
    parameters = _filled(function.get("parameters") or {}, type="object", properties={}, required=[])
    properties = {
        name: _filled(each, description="") if isinstance(each, dict) else each
        for name, each in parameters["properties"].items()
    }
    return _filled(function, description="") | {"parameters": parameters | {"properties": properties}}


def _filled(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object with these fields, where it has none or null."""
    return fields | {key: value for key, value in more.items() if fields.get(key) is None}


def short_call_id(id: str) -> str:
    """An id of nine letters or digits, as Mistral's templates require. Equal ids stay equal."""
    if re.fullmatch("[a-zA-Z0-9]{9}", id):
        return id
    digest = base64.b32encode(hashlib.sha256(id.encode("utf-8", "replace")).digest())
    return digest[:9].decode()


_SYSTEM, _USER, _VALUE, _RESULT, _DESCRIPTION = "Qz be brief.", "Qz hello?", "qzvalue", "qzresult", "Qz says the time."
_CALL = "call_qzqzqzqzqzqzqzqzqzqz"
_TOOL = {
    "type": "function",
    "function": {
        "name": "qzfunction",
        "description": _DESCRIPTION,
        "parameters": {
            "type": "object",
            "properties": {"qzkey": {"type": "string", "description": "Qz"}},
            "required": ["qzkey"],
        },
    },
}
_BARE_TOOL = {
    "type": "function",
    "function": {
        "name": "qzfunction",
        "parameters": {"type": "object", "properties": {"qzkey": {"type": "string"}}},
    },
}
"""With no more than definitions must have."""
_MOST_VARIABLES = 4
_LONG_ID = 9
_undefined_variable = re.compile(r"'(\w+)' is undefined").search
_badly_written = re.compile(rf"\\\"{_VALUE}|\{{'qzkey': *'{_VALUE}|%22{_VALUE}").search
"""Arguments in the wrong form: JSON inside a JSON string, or Python's `repr` of a dict."""


def supports_tools(template: ChatTemplate) -> bool:
    """Whether the template tells the model about tools."""
    return CapabilityProbe(template.compile(NO_CONTROL_TOKENS)).capabilities().tools


class CapabilityProbe:
    """Finds the capabilities of one template."""

    def __init__(self, compiled: CompiledTemplate) -> None:
        self._compiled = compiled
        self.forbidden = ""
        """What the template does that the sandbox does not let it do, if that came up."""
        self.outputs: list[str] = []
        """Everything that was rendered. `PromptBuilder` looks in it for tokens that the template builds from pieces."""
        self._undefined = ""
        """The variable that the last rendering lacked."""

    def capabilities(self) -> TemplateCapabilities:
        form = self._with_variables(TemplateCapabilities())
        form = next((each for each in self._content_forms(form) if self._shows_content(each)), form)
        form = self._with_tools(form)
        scored = [(self._score_calls(each), each) for each in self._call_forms(form)]
        score, form = max(scored, key=lambda pair: pair[0])
        if self._render(form, _conversation(form.system_role, "qz"), tools=True) is None:
            form = replace(form, long_call_ids=True)
        shown = self._render(form, _conversation(form.system_role), tools=True) or ""
        form = replace(form, tool_calls=score > 0, tool_results=_RESULT in shown)
        if form.system_role and form.tool_results:
            form = replace(form, system_before_result=_SYSTEM in shown)
        return self._with_developer(self._with_orders(form))

    def _with_variables(self, form: TemplateCapabilities) -> TemplateCapabilities:
        """The form, with the variables without which not even one message can be rendered."""
        for _ in range(_MOST_VARIABLES):
            if self._render(form, _spoken("user")) is not None or self._undefined in ("", "tools", *form.variables):
                break
            form = replace(form, variables=(*form.variables, self._undefined))
        return form

    def _with_tools(self, form: TemplateCapabilities) -> TemplateCapabilities:
        """How it wants to be told tools, and that there are none."""
        question = _conversation(form.system_role)[:-2]
        needs_list = replace(form, tools_always=True)
        if self._render(form, question) is None and self._render(needs_list, question) is not None:
            form = needs_list
        tools = self._render(form, question, tools=True) or ""
        form = replace(form, tools=_DESCRIPTION in tools or "qzfunction" in tools)
        if not form.tools or "qzfunction" in (self._render(form, question, (_BARE_TOOL,)) or ""):
            return form
        described = replace(form, described_tools=True)
        return described if "qzfunction" in (self._render(described, question, (_BARE_TOOL,)) or "") else form

    def _with_developer(self, form: TemplateCapabilities) -> TemplateCapabilities:
        """Whether it knows the role: it shows such messages, wherever it shows those of the system, and in another way
        than those of a role that there is not."""
        others = "system developer user developer assistant user" if form.later_system else "developer user"
        knows = replace(form, developer_role=True)
        one, other = (self._render(knows, _spoken(f"{role} user")) for role in ("developer", "qzrole"))
        shows = self._shows(knows, _spoken("developer user")) and self._shows(knows, _spoken(others))
        return knows if shows and one is not None and one.replace("developer", "qzrole") != other else form

    def _with_orders(self, form: TemplateCapabilities) -> TemplateCapabilities:
        """What it takes of messages in an order that not every template expects."""
        late = _spoken("system system user system assistant user") if form.system_role else []
        after = [*_conversation(form.system_role), *_spoken("user")]
        return replace(
            form,
            later_system=not late or self._shows(form, late, form.tools),
            repeated_roles=self._shows(form, _spoken("user user assistant assistant user"), form.tools),
            user_after_result=not form.tool_results or self._shows(form, after, True),
        )

    def _shows(self, form: TemplateCapabilities, messages: list[dict[str, Any]], tools: bool = False) -> bool:
        text = self._render(form, messages, tools)
        words = [message["content"] for message in messages if message["content"]]
        return text is not None and _in_order(words, text)

    def _content_forms(self, form: TemplateCapabilities) -> Iterator[TemplateCapabilities]:
        for system_role, content_parts in product((True, False), (False, True)):
            yield replace(form, system_role=system_role, content_parts=content_parts)

    def _shows_content(self, form: TemplateCapabilities) -> bool:
        text = self._render(form, _conversation(form.system_role)[:-2])
        return text is not None and _USER in text and (_SYSTEM in text or not form.system_role)

    def _call_forms(self, form: TemplateCapabilities) -> Iterator[TemplateCapabilities]:
        empty: tuple[Literal[""] | None, ...] = ("", None)
        kinds: tuple[Literal["object", "text"], ...] = ("object", "text")
        for short_call_ids, arguments, empty_content in product((False, True), kinds, empty):
            yield replace(form, short_call_ids=short_call_ids, arguments=arguments, empty_content=empty_content)

    def _score_calls(self, form: TemplateCapabilities) -> int:
        """How well the template shows a call in this form: -1 if it fails, 0 if the call is missing."""
        text = self._render(form, _conversation(form.system_role), tools=True)
        if text is None or _VALUE not in text:
            return -1 if text is None else 0
        return (1 if _badly_written(text) else 3) + (_RESULT in text)

    def _render(
        self, form: TemplateCapabilities, messages: list[dict[str, Any]], tools: bool | tuple[dict[str, Any], ...] = ()
    ) -> str | None:
        definitions = [_TOOL] if tools is True else list(tools or ())
        variables = {"documents": None, "add_generation_prompt": True, **form.shown_tools(definitions)}
        self._undefined = ""
        try:
            text = self._compiled.render([form.adapt(each) for each in messages], variables, False)
        except TemplateError as error:
            if "(SecurityError)" in str(error):
                self.forbidden = str(error)
            missing = _undefined_variable(str(error))
            self._undefined = missing[1] if missing else ""
            return None
        self.outputs.append(text)
        return text


def _in_order(words: list[str], text: str) -> bool:
    """Whether a text has each of these words once, in this order."""
    places = [text.find(word) for word in words]
    return -1 not in places and places == sorted(places) and all(text.count(word) == 1 for word in words)


def _spoken(roles: str) -> list[dict[str, Any]]:
    """Messages of these roles, each with a word of its own."""
    return [{"role": role, "content": f"Qz word {at}."} for at, role in enumerate(roles.split())]


def _conversation(system: bool, id: str = _CALL) -> list[dict[str, Any]]:
    """One message of each role. `id`: of the call."""
    call = {
        "id": id,
        "type": "function",
        "function": {"name": "qzfunction", "arguments": f'{{"qzkey": "{_VALUE}"}}'},
    }
    return [
        *([{"role": "system", "content": _SYSTEM}] if system else []),
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": _RESULT, "tool_call_id": id, "name": "qzfunction"},
    ]
