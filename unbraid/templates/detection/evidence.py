"""Evidence: what a template renders for each probe turn.

For each probe the conversation is rendered twice: up to the turn (the prompt) and with it. What the second has more is
what the model would have written. Templates complicate this: some trim whitespace, some write a prompt that differs
from the conversation, some end a turn only when the next begins. `_output_at` handles the first two; `matching` tries
several ends for the last.

All renderings together have a time limit, in CPU time of this thread, so that a busy machine does not matter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..capabilities import TemplateCapabilities
from ..capability_probe import CapabilityProbe
from ..control_tokens import NO_CONTROL_TOKENS
from ..errors import TemplateBroken, TemplateError, TemplateTooMuch
from ..sandbox.budget import TemplateLimits
from ..template import ChatTemplate, CompiledTemplate
from .affixes import boundaries, shared_end, shared_length, shared_start
from .errors import DetectionError
from .probes import TOOLS, TURNS, USER, ProbeTurn

LIMITS = TemplateLimits(source=100_000, output=100_000, items=100_000, steps=200_000, work=10_000_000, seconds=2.0)
"""Tighter than for prompts: probes are short, and so is what a template makes of them."""
_SECONDS = 4.0
"""CPU time of all renderings together."""
_LONGEST_TURN = 3_000
"""Characters that a template may write for one probe turn, and after it."""
_MOST_INVENTED = 8
_THINKING: tuple[dict[str, Any], ...] = ({}, *({"enable_thinking": on, "thinking": on} for on in (True, False)))
"""The variables by which templates turn reasoning on and off."""

_undefined = re.compile(r": '(\w+)' is undefined").search


@dataclass(frozen=True)
class RenderedTurn:
    """What a template rendered for one probe turn."""

    turn: ProbeTurn
    """The probe, without what the template left out."""
    prompt: str
    """What the model would have been given."""
    text: str
    """What it would have written, and whatever the template writes after it."""
    last: int
    """Where the last word of the probe ends in the text."""
    ids: tuple[str, ...]
    """The ids of calls that appear in the text."""

    @property
    def tail(self) -> str:
        """The text after the last word of the probe."""
        return self.text[self.last :]


@dataclass(frozen=True)
class Evidence:
    """Everything that a template rendered."""

    template: ChatTemplate
    capabilities: TemplateCapabilities
    prompts: tuple[str, ...]
    """The generation prompts: by default, with reasoning turned on, and turned off."""
    rendered: tuple[RenderedTurn, ...]
    ending: str
    """The text with which every turn ends."""
    refusals: Mapping[str, str]
    """Probes that the template refused, by label, and why."""

    def rendering_of(self, turn: ProbeTurn) -> RenderedTurn | None:
        return next((each for each in self.rendered if each.turn.label == turn.label), None)

    @property
    def shows_calls(self) -> bool:
        return any(each.turn.calls for each in self.rendered)

    @property
    def shows_reasoning(self) -> bool:
        return any(each.turn.reasoning for each in self.rendered)

    @property
    def describes_tools(self) -> bool:
        """Whether the prompt describes the tools to the model."""
        return self.capabilities.tools


def gather(template: ChatTemplate) -> Evidence:
    """Render the probes. Raises `DetectionError` for a text that is no chat template, or one that does too much."""
    try:
        template = template.limited(LIMITS)
        compiled = _TimedTemplate(template)
    except TemplateError as error:
        raise DetectionError(str(error)) from error
    capabilities = CapabilityProbe(compiled, template.source).capabilities()
    conversation = _Conversation(compiled, capabilities)
    prompts = conversation.prompts()
    rendered: list[RenderedTurn] = []
    refusals: dict[str, str] = {}
    for turn in TURNS:
        try:
            rendered.append(conversation.rendered(turn, prompts))
        except TemplateError as error:
            refusals[turn.label] = str(error)
    lead = _common_start(rendered) if conversation.has_no_generation_prompt(prompts[0]) else ""
    if lead:
        prompts, rendered = [prompts[0] + lead], [_with_longer_prompt(each, lead) for each in rendered]
    unique = tuple(dict.fromkeys(prompts))
    return Evidence(template, capabilities, unique, tuple(rendered), _common_end(rendered), refusals)


class _TimedTemplate(CompiledTemplate):
    """A compiled template with a time limit for all renderings. To do too much ends the detection, not one probe."""

    def __init__(self, template: ChatTemplate) -> None:
        super().__init__(template, NO_CONTROL_TOKENS)
        self._invented: dict[str, str] = {}
        """Variables that the template requires and that nobody documents; they are empty."""
        self._until = time.thread_time() + _SECONDS

    def render(self, messages: list[dict[str, Any]], variables: Mapping[str, Any], continue_final: bool) -> str:
        while True:
            if time.thread_time() > self._until:
                raise DetectionError(f"{self.name} takes longer than {_SECONDS:g} seconds for a few short messages")
            try:
                return super().render(messages, {**self._invented, **variables}, continue_final)
            except TemplateTooMuch as error:
                raise DetectionError(f"nothing can be said of a template that does too much: {error}") from error
            except TemplateBroken as error:
                missing = _undefined(str(error))
                if missing is None or missing[1] in self._invented or len(self._invented) >= _MOST_INVENTED:
                    raise
                self._invented[missing[1]] = ""


class _Conversation:
    """A question, and a turn of the assistant after it."""

    def __init__(self, compiled: _TimedTemplate, capabilities: TemplateCapabilities) -> None:
        self._compiled = compiled
        self._capabilities = capabilities
        self._user = capabilities.adapt({"role": "user", "content": USER})
        self._tools: list[dict[str, Any]] | None = TOOLS

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
        for options in _THINKING[1:]:
            try:
                prompts.append(self._render([self._user], True, options))
            except TemplateError:  # it knows other variables, and refuses these
                continue
        return prompts

    def has_no_generation_prompt(self, prompt: str) -> bool:
        """Whether the template ignores `add_generation_prompt`."""
        try:
            return self._render([self._user], False) == prompt
        except TemplateError:
            return False

    def rendered(self, turn: ProbeTurn, prompts: list[str]) -> RenderedTurn:
        """Render one probe. Raises `TemplateError` if the template refuses it."""
        found = self._rendered(turn, prompts, {})
        if turn.reasoning and not found.turn.reasoning:
            with suppress(TemplateError):
                asked = self._rendered(turn, prompts, _THINKING[1])
                return asked if asked.turn.reasoning else found
        return found

    def _rendered(self, turn: ProbeTurn, prompts: list[str], options: Mapping[str, Any]) -> RenderedTurn:
        message = self._capabilities.adapt(turn.message())
        whole = self._render([self._user, message], False, options)
        cut = max(_output_at(whole, prompt) for prompt in prompts)[1]
        text = whole[cut:]
        if len(text) > _LONGEST_TURN:
            raise DetectionError(f"the template writes {len(text):,} characters for {turn.label} of a few words")
        ids = tuple(call["id"] for call in message.get("tool_calls", ()) if call["id"] in text)
        return _rendered_turn(turn, whole[:cut], text, ids)

    def _render(self, messages: list[dict[str, Any]], prompt: bool, options: Mapping[str, Any] | None = None) -> str:
        variables = {"tools": self._tools, "documents": None, "add_generation_prompt": prompt, **(options or {})}
        return self._compiled.render(messages, variables, False)


def _rendered_turn(turn: ProbeTurn, prompt: str, text: str, ids: tuple[str, ...]) -> RenderedTurn:
    calls = tuple(call for call in turn.calls if call.name in text)
    seen = replace(
        turn,
        content=turn.content if turn.content in text else "",
        reasoning=turn.reasoning if turn.reasoning in text else "",
        calls=calls,
    )
    words = [seen.content, seen.reasoning, *(call.name for call in calls)]
    words += [word for call in calls for word in _words(call.arguments)]
    last = max((text.rfind(word) + len(word) for word in words if word and word in text), default=0)
    return RenderedTurn(seen, prompt, text, last, ids)


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif not isinstance(value, bool):
        yield str(value)


# Where the turn begins and ends


def _output_at(whole: str, prompt: str) -> tuple[bool, int]:
    """Where the model's output begins in a rendered conversation, and whether the whole prompt comes before it. The
    longest agreement with the prompt counts."""
    if whole.startswith(prompt):
        return True, len(prompt)
    shared = shared_length(whole, prompt)
    begin = max(0, min(whole.rfind(USER, 0, shared), shared), shared - _LONGEST_TURN)
    cut = max(boundaries(whole, begin, shared) & boundaries(prompt, begin, shared))
    if (after := after_words(whole, cut, prompt[cut:].split())) is not None:
        return True, after
    # Some prompts contain more than a finished conversation does. Then the prompt's end follows the shared part.
    ends = [
        at for at in boundaries(prompt, cut, len(prompt)) if prompt[at:].strip() and whole.startswith(prompt[at:], cut)
    ]
    return False, cut + max((len(prompt) - at for at in ends), default=0)


def after_words(text: str, at: int, words: list[str]) -> int | None:
    """The position after `words`, if they come at `at` with any whitespace between them; else None. Some templates vary
    the whitespace between the prompt and the conversation."""
    for word in words:
        at += len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(word, at):
            return None
        at += len(word)
    return at if words else None


def _common_start(rendered: Iterable[RenderedTurn]) -> str:
    """The text with which all turns begin."""
    texts = [each.text for each in rendered]
    lead = shared_start(*texts) if len(set(texts)) > 1 else ""
    return lead if lead.strip() else ""


def _with_longer_prompt(turn: RenderedTurn, lead: str) -> RenderedTurn:
    """A turn whose beginning belongs to the prompt."""
    return replace(turn, prompt=turn.prompt + lead, text=turn.text[len(lead) :], last=max(0, turn.last - len(lead)))


def _common_end(rendered: Iterable[RenderedTurn]) -> str:
    """The text with which all turns end."""
    tails = [each.tail for each in rendered if each.turn.content or each.turn.reasoning or each.turn.calls]
    return shared_end(*tails) if tails else ""
