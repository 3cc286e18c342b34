"""Evidence: what a template renders for the probes.

Each probe is a conversation: a question, and a turn of the assistant. The conversation is rendered up to the turn (the
prompt), and with the turn. What the second rendering has more is what the model would have written. Three habits of
templates complicate this. Some trim whitespace, and some write a prompt that differs from the conversation; `output_at`
handles both. Some end a turn only when the next one begins; `matching` tries several ends.

Each probe is also rendered with reasoning turned on and off, and with another question after it. Where the template
then writes something else, that is evidence as well.

All renderings share one budget, which counts steps. So the evidence does not depend on the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...formats import all_formats
from ..capabilities import CapabilityProbe, TemplateCapabilities
from ..control_tokens import NO_CONTROL_TOKENS
from ..errors import DetectionError, TemplateBroken, TemplateError, TemplateTooMuch
from ..sandbox.budget import Budget, TemplateLimits, spending, stopped_clock
from ..template import ChatTemplate, CompiledTemplate
from .affixes import boundaries, first_tag, last_tag, shared_end, shared_length, shared_start, tags
from .probes import (
    NEXT_USER,
    TOOLS,
    TURNS,
    UNREAD,
    USER,
    ProbeTurn,
    RenderedTurn,
    Strand,
    messages_with_reasoning,
    rendered_turn,
    switches,
)

LIMITS = TemplateLimits(source=100_000, output=100_000, items=100_000, steps=200_000, work=10_000_000, seconds=2.0)
"""Tighter than for prompts: probes are short, and so is what a template makes of them."""
_TOGETHER = TemplateLimits(steps=2_000_000, work=100_000_000, seconds=60)
"""For all renderings together. The templates of the vendors take up to 130,000 steps."""
_MOST_INVENTED = 8
LONGEST_TURN = 3_000
"""Characters that a template may write for one probe turn, and after it."""
STRANDS: tuple[Strand, ...] = ("content", "reasoning", "calls")
_TURNED_ON, _TURNED_OFF = "with reasoning turned on", "with reasoning turned off"
_FOLLOWED = "with another question after it"
_undefined = re.compile(r": '(\w+)' is undefined").search


@dataclass(frozen=True)
class Evidence:
    """Everything that a template rendered."""

    template: ChatTemplate
    capabilities: TemplateCapabilities
    prompts: tuple[str, ...]
    """The generation prompts: by default, with reasoning turned on, and turned off."""
    rendered: tuple[RenderedTurn, ...]
    variants: tuple[RenderedTurn, ...]
    """What the template writes in other circumstances, where that differs."""
    swapped: tuple[str, ...]
    """Turns whose content the template writes in the place of reasoning, by label."""
    ending: str
    """The text with which every turn ends."""
    refusals: Mapping[str, str]
    """Probes that the template refused, by label, and why."""

    def rendering_of(self, turn: ProbeTurn) -> RenderedTurn | None:
        return next((each for each in self.rendered if each.turn.label == turn.label), None)

    @property
    def strands(self) -> tuple[Strand, ...]:
        """The strands that the template writes."""
        strands_shown = {strand for each in (*self.rendered, *self.variants) for strand in each.turn.strands}
        return tuple(strand for strand in STRANDS if strand in strands_shown)

    @property
    def shows_calls(self) -> bool:
        return "calls" in self.strands

    @property
    def shows_reasoning(self) -> bool:
        return "reasoning" in self.strands

    @cached_property
    def borders(self) -> list[str]:
        """The tags between the user's words and the assistant's turn."""
        prompt = self.prompts[0]
        return list(dict.fromkeys(tags(prompt[prompt.rfind(USER) :])))

    @cached_property
    def prompt_tags(self) -> list[str]:
        """All tags of the prompt."""
        return list(dict.fromkeys(tags(self.prompts[0])))

    @cached_property
    def known_ends(self) -> frozenset[str]:
        """The end tokens of all registered formats."""
        return frozenset(end for format in all_formats() for end in format.ends)

    @property
    def describes_tools(self) -> bool:
        """Whether the prompt describes the tools to the model."""
        return self.capabilities.tools


def gather(template: ChatTemplate) -> Evidence:
    """Render the probes. Raises `DetectionError` for a text that is no chat template, or one that does too much."""
    try:
        template = template.limited(LIMITS)
        compiled = BudgetedTemplate(template)
    except TemplateError as error:
        raise DetectionError(str(error)) from error
    capabilities = CapabilityProbe(compiled).capabilities()
    conversation = ProbeConversation(compiled, capabilities, template.source)
    prompts = conversation.prompts()
    rendered: list[RenderedTurn] = []
    variants: list[RenderedTurn] = []
    refusals: dict[str, str] = {}
    for turn in TURNS:
        try:
            renderings = conversation.rendered(turn, prompts)
        except TemplateError as error:
            refusals[turn.label] = str(error)
            continue
        rendered.append(renderings[0])
        variants += renderings[1:]
    lead = _common_start(rendered) if conversation.has_no_generation_prompt(prompts[0]) else ""
    if lead:
        prompts, rendered = [prompts[0] + lead], [_with_longer_prompt(each, lead) for each in rendered]
        variants = [_with_longer_prompt(each, lead) for each in variants if each.text.startswith(lead)]
    shown = [*rendered, *variants]
    swapped = {each.label: other for each in shown if (other := _swapped(each, shown)) is not None}
    return Evidence(
        template,
        capabilities,
        prompts=tuple(dict.fromkeys(prompts)),
        rendered=tuple(swapped.get(each.label, each) for each in rendered),
        variants=tuple(swapped.get(each.label, each) for each in variants),
        swapped=tuple(swapped),
        ending=_common_end(rendered),
        refusals=refusals,
    )


def _swapped(shown: RenderedTurn, others: list[RenderedTurn]) -> RenderedTurn | None:
    """The turn with its content as reasoning, if the template writes it just as it writes reasoning. To the template,
    and so to the model, it is reasoning."""
    turn = shown.turn
    if not turn.content or turn.reasoning:
        return None
    alike = [other for other in others if other.turn.strands == ("reasoning", *turn.strands[1:])]
    same = any(other.text.replace(other.turn.reasoning or "", turn.content) == shown.text for other in alike)
    around = _around(shown.text, turn.content)
    others_around = [_around(other.text, other.turn.reasoning) for other in others]
    if not same and (around is None or around not in others_around):
        return None
    return replace(shown, turn=replace(turn, content="", reasoning=turn.content))


def _around(text: str, words: str | None) -> tuple[str, str] | None:
    """All that stands before some words, and the tag after them; None if nothing stands before."""
    before, there, after = text.partition(words) if words else ("", "", "")
    return (before, first_tag(after).strip()) if there and before.strip() else None


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


# A template, asked


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


class ProbeConversation:
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
        renderings: list[RenderedTurn] = []
        refusals: list[TemplateError] = []
        for circumstance, options in (("", {}), *self._circumstances.items()):
            try:
                renderings.append(self._in_best_form(turn, prompts, circumstance, options))
            except TemplateError as error:
                refusals.append(error)
        if not renderings:
            raise refusals[0]
        # The rendering that shows most counts.
        renderings.sort(key=lambda each: -len(each.turn.strands))
        with suppress(TemplateError):
            followed = self._in_best_form(turn, prompts, _FOLLOWED, {})
            if _continues(renderings[0], followed):
                renderings = [replace(followed, circumstance="")]
            elif USER in followed.prompt:  # else the template writes earlier turns in another order
                renderings.append(followed)
        news: list[RenderedTurn] = []
        for each in renderings:
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
        renderings: list[RenderedTurn] = []
        refusals: list[TemplateError] = []
        for each in messages_with_reasoning(message, turn.reasoning, self._source):
            try:
                renderings.append(self._rendered(turn, each, prompts, circumstance, options))
            except TemplateError as error:
                refusals.append(error)
                continue
            if UNREAD in renderings[-1].text:
                renderings.pop()
            elif not turn.reasoning or renderings[-1].turn.reasoning:
                break
        if not renderings:
            raise refusals[0]
        return max(renderings, key=lambda each: len(each.turn.strands))

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
        if cut <= (question := whole.find(USER)):  # what it writes before the question depends on what comes after
            cut = max(after_question(whole, question, prompt) for prompt in prompts)
        borders = next_turn(whole) if followed else range(len(whole), len(whole) + 1)
        text = whole[cut : borders[-1]]
        if len(text) > LONGEST_TURN:
            raise DetectionError(f"the template writes {len(text):,} characters for {turn.label} of a few words")
        ids = tuple(call["id"] for call in message.get("tool_calls", ()) if call["id"] in text)
        rendering = rendered_turn(turn, whole[:cut], text, ids, circumstance)
        if not followed:
            return rendering
        ends = sorted(boundaries(whole, borders[0], borders[-1]))
        return replace(rendering, ends=tuple(at - cut for at in ends if at - cut >= rendering.last))

    def _render(self, messages: list[dict[str, Any]], prompt: bool, options: Mapping[str, Any] | None = None) -> str:
        variables = {"tools": self._tools, "documents": None, "add_generation_prompt": prompt, **(options or {})}
        return self._compiled.render(messages, variables, False)


def _continues(shown: RenderedTurn, followed: RenderedTurn) -> bool:
    """Whether the template writes the last message as the beginning of an answer that the model is to continue: it
    opens reasoning for an answer that has none, and does not if the message is not the last."""
    if shown.turn.reasoning or followed.turn.strands != shown.turn.strands:
        return False
    return shown.asked.startswith(followed.asked) and bool(last_tag(shown.asked[len(followed.asked) :]))


# Where a turn begins and ends in a rendered conversation


def output_at(whole: str, prompt: str) -> tuple[bool, int]:
    """Where the model's output begins in a rendered conversation, and whether the whole prompt comes before it. The
    longest agreement with the prompt counts."""
    if whole.startswith(prompt):
        return True, len(prompt)
    shared = shared_length(whole, prompt)
    begin = max(0, min(whole.rfind(USER, 0, shared), shared), shared - LONGEST_TURN)
    cut = max(boundaries(whole, begin, shared) & boundaries(prompt, begin, shared))
    if (after := after_words(whole, cut, prompt[cut:].split())) is not None:
        return True, after
    # Some prompts contain more than a finished conversation does. Then the prompt's end follows the shared part.
    ends = [
        at for at in boundaries(prompt, cut, len(prompt)) if prompt[at:].strip() and whole.startswith(prompt[at:], cut)
    ]
    return False, cut + max((len(prompt) - at for at in ends), default=0)


def after_question(whole: str, question: int, prompt: str) -> int:
    """Where the model's output begins, by the question and what the prompt has after it."""
    end = prompt[prompt.rfind(USER) :]
    return question + (len(end) if whole.startswith(end, question) else len(USER))


def after_words(text: str, at: int, words: list[str]) -> int | None:
    """The position after `words`, if they come at `at` with any whitespace between them; else None. Some templates vary
    the whitespace between the prompt and the conversation."""
    for word in words:
        at += len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(word, at):
            return None
        at += len(word)
    return at if words else None


def next_turn(whole: str) -> range:
    """From where to where the words may come with which the user's next turn begins: those that stand before the first
    one as well."""
    first, second = whole.find(USER), whole.find(NEXT_USER)
    second = len(whole) if second < 0 else second
    return range(second - len(shared_end(whole[:first], whole[:second])), second + 1)
