"""A template for one vocabulary, compiled and probed, and what it writes.

    prepared = PreparedTemplate(template, controls)
    prepared.capabilities                     # which roles and fields it reads
    prepared.write(messages, variables, "")   # "<|im_start|>user\nHi<|im_end|>\n…", with marks

What it wrote for conversations of one kind is kept as a recipe (`templates.recipes`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from ...caching import LruCache
from ..capabilities import CapabilityProbe, TemplateCapabilities
from ..control_tokens import BREAK, ControlTokens
from ..errors import PromptError, TemplateError, TemplateTooMuch
from ..recipes import Recipes
from ..symbolic_text import Record
from ..template import ChatTemplate, CompiledTemplate
from ..traced_text import Origin, Trace
from .bridges import PromptBridge
from .polyfills import ToolPolyfill

MOST_TOOLS = 256
"""Sets of tools that are kept, and whether a template tells them."""
_MOST_KINDS = 64
"""Kinds of conversations that a template has recipes for."""
_MOST_TURNS = 16
"""A conversation of more messages is rendered: there are too many kinds of them."""
LONGEST_KEY = 64_000
"""What has a longer key is not kept."""


class PreparedTemplate:
    """A template for one vocabulary, compiled and probed when it is first used."""

    def __init__(self, template: ChatTemplate, controls: ControlTokens) -> None:
        self.name = template.name
        self._template = template
        self._controls = controls
        self._bridge: PromptBridge | None = None
        self._told: LruCache[str, bool] = LruCache(MOST_TOOLS)
        self._recipes: LruCache[tuple[str, ...], Recipes] = LruCache(_MOST_KINDS)
        self._cuts: dict[str, bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What is compiled stays in its process."""
        kept = {name: value for name, value in vars(self).items() if name not in ("_probed", "_traced")}
        return kept | {"_bridge": None, "_recipes": LruCache(_MOST_KINDS)}

    @cached_property
    def _probed(self) -> tuple[CompiledTemplate, TemplateCapabilities, ControlTokens, str]:
        compiled = self._template.compile(self._controls)
        probe = CapabilityProbe(compiled)
        capabilities = probe.capabilities()
        # The probe's messages spell no control token. A token without a mark in the output was therefore built by the
        # template, from `<|` and `user` and `|>`. Such tokens must not occur in messages, so messages are broken up.
        built = {text for output in probe.outputs for text in self._controls.unmarked(output)}
        tokens = ControlTokens({text: self._controls.ids[text] for text in built})
        return compiled, capabilities, tokens, "" if capabilities.tool_calls else probe.forbidden

    @property
    def capabilities(self) -> TemplateCapabilities:
        return self._probed[1]

    def tells(self, tools: list[dict[str, Any]], key: str) -> bool:
        """Whether it tells the model of all these tools. Some fail at schemas that their authors did not think of.

        key: what tells the tools from others.
        """
        compiled, capabilities, *_ = self._probed
        if not capabilities.tools:
            return False
        tells = self._told.get(key)
        if tells is None:
            question = capabilities.adapt({"role": "user", "content": "Hello."})
            variables = {"documents": None, "add_generation_prompt": True, **capabilities.shown_tools(tools)}
            try:
                text = compiled.render([question], variables, False)
            except TemplateTooMuch:
                raise
            except TemplateError:
                text = ""
            tells = self._told[key] = all(tool["function"].get("name", "") in text for tool in tools)
        return tells

    def cuts_at(self, marker: str) -> bool:
        """Whether it drops something of an answer that names a marker."""
        cuts = self._cuts.get(marker)
        if cuts is None:
            question = {"role": "user", "content": "Hello."}
            thought = {"reasoning_content": "Hm."}
            answers = [
                {"role": "assistant", "content": f"qz{at}a{marker}qz{at}b", **(thought if at % 2 else {})}
                for at in range(4)
            ]
            turns = [each for answer in answers for each in (question, answer)]
            messages = [self.capabilities.adapt(each) for each in (*turns, question)]
            words = [f"qz{at}{letter}" for at in range(len(answers)) for letter in "ab"]
            variables = {"documents": None, "add_generation_prompt": True, **self.capabilities.shown_tools(None)}
            try:
                text = self._probed[0].render(messages, variables, False)
            except TemplateError:
                text = ""
            cuts = self._cuts[marker] = not all(word in text for word in words)
        return cuts

    def bridge(self, polyfill: ToolPolyfill) -> PromptBridge:
        """What rewrites conversations for it. `polyfill` is the builder's."""
        if self._bridge is None:
            self._bridge = PromptBridge(self._probed[0], self.capabilities, polyfill)
        return self._bridge

    @property
    def forbidden(self) -> str:
        """What the sandbox forbids it to do when it shows calls; else empty."""
        return self._probed[3]

    @property
    def builds_tokens(self) -> bool:
        """Whether the template puts control tokens together from pieces."""
        return bool(self._probed[2].ids)

    def render(self, messages: list[dict[str, Any]], variables: Mapping[str, Any], continue_final: bool) -> str:
        compiled, _, built, _ = self._probed
        if not built.ids:
            return compiled.render(messages, variables, continue_final).replace(BREAK, "")
        text = compiled.render(built.break_up(messages), built.break_up(dict(variables)), continue_final)
        return built.mark_all(text).replace(BREAK, "")

    def write(self, messages: list[dict[str, Any]], variables: Mapping[str, Any], tools_key: str) -> str:
        """The same as `render`. Conversations of roles and texts, of a kind that came before, need no rendering.

        tools_key: what tells the tools from others.
        """
        kind = self._kind(messages, variables, tools_key)
        recipes = None if kind is None else self._recipes.get(kind)
        text = None if recipes is None else recipes.text(_texts(messages))
        if text is not None:
            return text.replace(BREAK, "")
        text = self.render(messages, variables, False)
        if recipes is not None:
            recipes.learn(messages, _texts(messages), partial(self._write_with_symbols, variables), _texts)
        elif kind is not None:
            self._recipes[kind] = Recipes()
        return text

    def recipes(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], tools_key: str
    ) -> Recipes | None:
        """What `write` goes by for messages like these, if there is anything."""
        kind = self._kind(messages, variables, tools_key)
        return None if kind is None else self._recipes.get(kind)

    def _kind(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], tools_key: str
    ) -> tuple[str, ...] | None:
        """All that the output depends on but texts; None where recipes cannot be made, or are not worth it."""
        if len(messages) > _MOST_TURNS or len(tools_key) > LONGEST_KEY or self.builds_tokens:
            return None
        if not all(len(message) == 2 and type(message.get("content")) is str for message in messages):
            return None
        others = json.dumps({name: value for name, value in variables.items() if name != "tools"})
        roles = [message["role"] for message in messages]
        return None if len(others) > LONGEST_KEY else (tools_key, others, *roles)

    def _write_with_symbols(
        self, variables: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], record: Record | None = None
    ) -> str | None:
        try:
            if record is None:
                return self.render([dict(message) for message in messages], variables, False)
            symbols = [
                {**message, "content": record.symbol(message["content"], Origin(at, "content"))}
                for at, message in enumerate(messages)
            ]
            return self.trace(symbols, variables, False)[0]
        except PromptError:
            return None

    @cached_property
    def _traced(self) -> CompiledTemplate:
        return self._template.compile(self._controls, traced=True)

    def trace(
        self, messages: list[dict[str, Any]], variables: Mapping[str, Any], continue_final: bool
    ) -> tuple[str, Trace]:
        """The text of `render`, and where each part of it comes from."""
        built = self._probed[2]
        if built.ids:
            messages, variables = built.break_up(messages), built.break_up(dict(variables))
        text, trace = self._traced.trace(messages, variables, continue_final)
        return (built.mark_all(text).replace(BREAK, "") if built.ids else text), trace


def _texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]
