"""What a template writes for each of the probes: the evidence that a format is judged by."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..errors import TemplateBroken, TemplateError, TemplateTooMuch
from ..control_tokens import NO_CONTROLS
from ..sandbox.budget import TemplateLimits
from ..capabilities import Prober, Shape
from ..template import ChatTemplate, Rendering
from .affixes import cuts, shared_end, shared_length, shared_start
from .errors import DetectionError
from .probes import TOOLS, TURNS, USER, Turn

LIMITS = TemplateLimits(source=100_000, output=100_000, items=100_000, steps=200_000, work=10_000_000, seconds=2.0)
"""Probes are short, and so is what a template makes of them."""
_SECONDS = 4.0
"""How long all renderings together may work; a machine that is busy with other things does not count."""
_LONGEST_TURN = 3_000
"""Characters that a template may write for one turn of a few words, and what comes after it."""
_MOST_MADE_UP = 8
_THINKING: tuple[dict[str, Any], ...] = ({}, *({"enable_thinking": on, "thinking": on} for on in (True, False)))
"""The words by which templates are told to let the model reason, or not."""

_undefined = re.compile(r": '(\w+)' is undefined").search


@dataclass(frozen=True)
class Shown:
    """What a template wrote for one turn."""

    turn: Turn
    """What can be seen of it: templates leave out what they have no place for."""
    prompt: str
    """What the model would have been given,"""
    text: str
    """and what it would have written, with all that the template writes after it."""
    last: int
    """Where the last word of the turn ends in the text."""
    ids: tuple[str, ...]
    """Those of the calls' ids that can be seen."""

    @property
    def tail(self) -> str:
        """What comes after the last word."""
        return self.text[self.last :]


@dataclass(frozen=True)
class Evidence:
    """All that a template wrote."""

    template: ChatTemplate
    shape: Shape
    prompts: tuple[str, ...]
    """The ends of the prompts that let the model write: as it is, with reasoning asked for, and without it."""
    shown: tuple[Shown, ...]
    ending: str
    """What comes after every turn."""
    refusals: Mapping[str, str]
    """Turns that the template could not be given, and why."""

    def of(self, turn: Turn) -> Shown | None:
        return next((each for each in self.shown if each.turn.label == turn.label), None)

    @property
    def shows_calls(self) -> bool:
        return any(each.turn.calls for each in self.shown)

    @property
    def shows_reasoning(self) -> bool:
        return any(each.turn.reasoning for each in self.shown)

    @property
    def tells_tools(self) -> bool:
        """Whether the prompt tells the model of tools."""
        return self.shape.tools


def gather(template: ChatTemplate) -> Evidence:
    """Render the probes. Raises `DetectionError` for what is no chat template, and for one that does too much."""
    try:
        template = _limited(template)
        trials = _Trials(template)
    except TemplateError as error:
        raise DetectionError(str(error)) from error
    shape = Prober(trials, template.source).shape()
    conversation = _Conversation(trials, shape)
    prompts = conversation.prompts()
    shown: list[Shown] = []
    refusals: dict[str, str] = {}
    for turn in TURNS:
        try:
            shown.append(conversation.shown(turn, prompts))
        except TemplateError as error:
            refusals[turn.label] = str(error)
    lead = _lead(shown) if conversation.begins_no_turn(prompts[0]) else ""
    if lead:
        prompts, shown = [prompts[0] + lead], [_begun(each, lead) for each in shown]
    return Evidence(template, shape, tuple(dict.fromkeys(prompts)), tuple(shown), _ending(shown), refusals)


def _limited(template: ChatTemplate) -> ChatTemplate:
    tokens = dict(template.special_tokens)
    bos, eos = tokens.pop("bos_token"), tokens.pop("eos_token")
    return ChatTemplate(
        template.source, bos_token=bos, eos_token=eos, special_tokens=tokens, name=template.name, limits=LIMITS
    )


class _Trials(Rendering):
    """Renders, and keeps the time. What does too much ends the whole detection, not one trial."""

    def __init__(self, template: ChatTemplate) -> None:
        super().__init__(template, NO_CONTROLS)
        self._made_up: dict[str, str] = {}
        """Variables that the template cannot do without; nobody says what they hold."""
        self._until = time.thread_time() + _SECONDS

    def render(self, messages: list[dict[str, Any]], given: Mapping[str, Any], continue_final: bool) -> str:
        while True:
            if time.thread_time() > self._until:
                raise DetectionError(f"{self._name} takes longer than {_SECONDS:g} seconds for a few short messages")
            try:
                return super().render(messages, {**self._made_up, **given}, continue_final)
            except TemplateTooMuch as error:
                raise DetectionError(f"nothing can be said of a template that does too much: {error}") from error
            except TemplateBroken as error:
                missing = _undefined(str(error))
                if missing is None or missing[1] in self._made_up or len(self._made_up) >= _MOST_MADE_UP:
                    raise
                self._made_up[missing[1]] = ""


class _Conversation:
    """A question, and a turn of the assistant after it."""

    def __init__(self, trials: _Trials, shape: Shape) -> None:
        self._trials = trials
        self._shape = shape
        self._user = shape.message({"role": "user", "content": USER})
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
            except TemplateError:  # it knows other words for that, and refuses these
                continue
        return prompts

    def begins_no_turn(self, prompt: str) -> bool:
        """Whether the template writes the same where the model is to answer and where it is not."""
        try:
            return self._render([self._user], False) == prompt
        except TemplateError:
            return False

    def shown(self, turn: Turn, prompts: list[str]) -> Shown:
        """Raises `TemplateError` where the template does not take such a turn."""
        found = self._shown(turn, prompts, {})
        if turn.reasoning and not found.turn.reasoning:
            with suppress(TemplateError):
                asked = self._shown(turn, prompts, _THINKING[1])
                return asked if asked.turn.reasoning else found
        return found

    def _shown(self, turn: Turn, prompts: list[str], options: Mapping[str, Any]) -> Shown:
        message = self._shape.message(turn.message())
        whole = self._render([self._user, message], False, options)
        cut = max(_output_at(whole, prompt) for prompt in prompts)[1]
        text = whole[cut:]
        if len(text) > _LONGEST_TURN:
            raise DetectionError(f"the template writes {len(text):,} characters for {turn.label} of a few words")
        ids = tuple(call["id"] for call in message.get("tool_calls", ()) if call["id"] in text)
        return _seen(turn, whole[:cut], text, ids)

    def _render(self, messages: list[dict[str, Any]], prompt: bool, options: Mapping[str, Any] | None = None) -> str:
        given = {"tools": self._tools, "documents": None, "add_generation_prompt": prompt, **(options or {})}
        return self._trials.render(messages, given, False)


def _seen(turn: Turn, prompt: str, text: str, ids: tuple[str, ...]) -> Shown:
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
    return Shown(seen, prompt, text, last, ids)


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
    """Whether a rendered conversation begins with a whole prompt, and how far it goes along with it. After that comes
    what the model writes."""
    if whole.startswith(prompt):
        return True, len(prompt)
    shared = shared_length(whole, prompt)
    begin = max(0, min(whole.rfind(USER, 0, shared), shared), shared - _LONGEST_TURN)
    cut = max(cuts(whole, begin, shared) & cuts(prompt, begin, shared))
    if (after := after_words(whole, cut, prompt[cut:].split())) is not None:
        return True, after
    # Some write more before the turn than in a conversation that goes on: then the prompt's end comes a second time.
    ends = [at for at in cuts(prompt, cut, len(prompt)) if prompt[at:].strip() and whole.startswith(prompt[at:], cut)]
    return False, cut + max((len(prompt) - at for at in ends), default=0)


def after_words(text: str, at: int, words: list[str]) -> int | None:
    """The place after words that come with whitespace of whatever kind between them; None where they do not come, or
    where there are none. Some templates are not careful about whitespace."""
    for word in words:
        at += len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(word, at):
            return None
        at += len(word)
    return at if words else None


def _lead(shown: Iterable[Shown]) -> str:
    """What all turns begin with."""
    texts = [each.text for each in shown]
    lead = shared_start(*texts) if len(set(texts)) > 1 else ""
    return lead if lead.strip() else ""


def _begun(shown: Shown, lead: str) -> Shown:
    """A turn whose beginning belongs to the prompt."""
    return replace(shown, prompt=shown.prompt + lead, text=shown.text[len(lead) :], last=max(0, shown.last - len(lead)))


def _ending(shown: Iterable[Shown]) -> str:
    """What all turns end with."""
    tails = [each.tail for each in shown if each.turn.content or each.turn.reasoning or each.turn.calls]
    return shared_end(*tails) if tails else ""
