"""A conversation with a template: a question, and a turn of the assistant after it.

For each probe the conversation is rendered twice: up to the turn (the prompt) and with it. What the second has more is
what the model would have written. Templates complicate this: some trim whitespace, some write a prompt that differs
from the conversation, some end a turn only when the next begins. `output` handles the first two; `matching` tries
several ends for the last.

Each probe is also rendered with reasoning turned on and off, and with another question after it. Where a template then
writes something else, that is evidence as well.

All renderings together have one budget, which counts steps: what is found does not depend on the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...capabilities import TemplateCapabilities
from ...control_tokens import NO_CONTROL_TOKENS
from ...errors import TemplateBroken, TemplateError, TemplateTooMuch
from ...sandbox.budget import Budget, TemplateLimits, spending
from ...sandbox.clock import stopped_clock
from ...template import ChatTemplate, CompiledTemplate
from ..affixes import boundaries, last_tag
from ..errors import DetectionError
from .output import LONGEST_TURN, next_turn, output_at
from .probes import NEXT_USER, TOOLS, USER, ProbeTurn
from .rendered import RenderedTurn, rendered_turn
from .ways import UNREAD, messages_with_reasoning, switches

_TOGETHER = TemplateLimits(steps=2_000_000, work=100_000_000, seconds=60)
"""For all renderings together. The templates of the vendors take up to 130,000 steps."""
_MOST_INVENTED = 8
_TURNED_ON, _TURNED_OFF = "with reasoning turned on", "with reasoning turned off"
_FOLLOWED = "with another question after it"

_undefined = re.compile(r": '(\w+)' is undefined").search


class BudgetedTemplate(CompiledTemplate):
    """A compiled template with one budget for all renderings. To do too much ends the detection, not one probe."""

    def __init__(self, template: ChatTemplate) -> None:
        super().__init__(template, NO_CONTROL_TOKENS)
        self._invented: dict[str, str] = {}
        """Variables that the template requires and that nobody documents; they are empty."""
        self._budget = Budget(_TOGETHER)

    def render(self, messages: list[dict[str, Any]], variables: Mapping[str, Any], continue_final: bool) -> str:
        while True:
            try:
                with spending(self._budget), stopped_clock():
                    return super().render(messages, {**self._invented, **variables}, continue_final)
            except TemplateTooMuch as error:
                raise DetectionError(f"nothing can be said of a template that does too much: {error}") from error
            except TemplateBroken as error:
                missing = _undefined(str(error))
                if missing is None or missing[1] in self._invented or len(self._invented) >= _MOST_INVENTED:
                    raise
                self._invented[missing[1]] = ""


class Conversation:
    """A question, and a turn of the assistant after it."""

    def __init__(self, compiled: BudgetedTemplate, capabilities: TemplateCapabilities, source: str) -> None:
        self._compiled = compiled
        self._capabilities = capabilities
        self._source = source
        self._user, self._next_user = (
            capabilities.adapt({"role": "user", "content": words}) for words in (USER, NEXT_USER)
        )
        self._tools: list[dict[str, Any]] | None = TOOLS
        self._circumstances: dict[str, Mapping[str, Any]] = {}
        """Variables of the template that turn reasoning on and off, as far as it takes them."""

    def prompts(self) -> list[str]:
        try:
            first = self._render([self._user], True)
        except TemplateError:
            self._tools = None
            try:
                first = self._render([self._user], True)
            except TemplateError as error:
                raise DetectionError(f"the template takes no message, so nothing can be said of it: {error}") from error
        if USER not in first:
            raise DetectionError("this is no chat template: it does not write what the user says")
        prompts = [first]
        for name, on in ((_TURNED_ON, True), (_TURNED_OFF, False)):
            for options in switches(self._source, on):
                try:
                    prompts.append(self._render([self._user], True, options))
                except TemplateError:  # it knows other words, and refuses these
                    continue
                self._circumstances[name] = options
                break
        return prompts

    def has_no_generation_prompt(self, prompt: str) -> bool:
        """Whether the template ignores `add_generation_prompt`."""
        try:
            return self._render([self._user], False) == prompt
        except TemplateError:
            return False

    def rendered(self, turn: ProbeTurn, prompts: list[str]) -> list[RenderedTurn]:
        """Render one probe: as usual, and where the template writes something else in other circumstances, so as well.
        Raises `TemplateError` if the template refuses it."""
        found: list[RenderedTurn] = []
        refusals: list[TemplateError] = []
        for circumstance, options in (("", {}), *self._circumstances.items()):
            try:
                found.append(self._in_best_form(turn, prompts, circumstance, options))
            except TemplateError as error:
                refusals.append(error)
        if not found:
            raise refusals[0]
        # The rendering that shows most counts.
        found.sort(key=lambda each: -len(each.turn.strands))
        with suppress(TemplateError):
            followed = self._in_best_form(turn, prompts, _FOLLOWED, {})
            if _continues(found[0], followed):
                found = [replace(followed, circumstance="")]
            elif USER in followed.prompt:  # else the template writes earlier turns in another order
                found.append(followed)
        news: list[RenderedTurn] = []
        for each in found:
            if not any(each.asked == other.asked and each.text.startswith(other.text.rstrip()) for other in news):
                news.append(each)
        return news

    def _in_best_form(
        self, turn: ProbeTurn, prompts: list[str], circumstance: str, options: Mapping[str, Any]
    ) -> RenderedTurn:
        """Render a probe with its reasoning where the template looks for it."""
        message = self._capabilities.adapt(turn.message())
        if turn.reasoning is None:
            return self._rendered(turn, message, prompts, circumstance, options)
        found: list[RenderedTurn] = []
        refusals: list[TemplateError] = []
        for each in messages_with_reasoning(message, turn.reasoning, self._source):
            try:
                found.append(self._rendered(turn, each, prompts, circumstance, options))
            except TemplateError as error:
                refusals.append(error)
                continue
            if UNREAD in found[-1].text:
                found.pop()
            elif not turn.reasoning or found[-1].turn.reasoning:
                break
        if not found:
            raise refusals[0]
        return max(found, key=lambda each: len(each.turn.strands))

    def _rendered(
        self,
        turn: ProbeTurn,
        message: dict[str, Any],
        prompts: list[str],
        circumstance: str,
        options: Mapping[str, Any],
    ) -> RenderedTurn:
        followed = circumstance == _FOLLOWED
        whole = self._render([self._user, message, *([self._next_user] if followed else [])], False, options)
        cut = max(output_at(whole, prompt) for prompt in prompts)[1]
        borders = next_turn(whole) if followed else range(len(whole), len(whole) + 1)
        text = whole[cut : borders[-1]]
        if len(text) > LONGEST_TURN:
            raise DetectionError(f"the template writes {len(text):,} characters for {turn.label} of a few words")
        ids = tuple(call["id"] for call in message.get("tool_calls", ()) if call["id"] in text)
        found = rendered_turn(turn, whole[:cut], text, ids, circumstance)
        if not followed:
            return found
        ends = sorted(boundaries(whole, borders[0], borders[-1]))
        return replace(found, ends=tuple(at - cut for at in ends if at - cut >= found.last))

    def _render(self, messages: list[dict[str, Any]], prompt: bool, options: Mapping[str, Any] | None = None) -> str:
        variables = {"tools": self._tools, "documents": None, "add_generation_prompt": prompt, **(options or {})}
        return self._compiled.render(messages, variables, False)


def _continues(shown: RenderedTurn, followed: RenderedTurn) -> bool:
    """Whether the template writes the last message as the beginning of an answer that the model is to continue: it
    opens reasoning for an answer that has none, and does not if the message is not the last."""
    if shown.turn.reasoning or followed.turn.strands != shown.turn.strands:
        return False
    return shown.asked.startswith(followed.asked) and bool(last_tag(shown.asked[len(followed.asked) :]))
