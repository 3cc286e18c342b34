"""Evidence: everything that a template renders for the probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...capabilities import TemplateCapabilities
from ...capability_probe import CapabilityProbe
from ...errors import TemplateError
from ...sandbox.budget import TemplateLimits
from ...template import ChatTemplate
from ..affixes import shared_end, shared_start
from ..errors import DetectionError
from .conversation import BudgetedTemplate, Conversation
from .probes import TURNS, ProbeTurn, Strand
from .rendered import RenderedTurn

LIMITS = TemplateLimits(source=100_000, output=100_000, items=100_000, steps=200_000, work=10_000_000, seconds=2.0)
"""Tighter than for prompts: probes are short, and so is what a template makes of them."""
_STRANDS: tuple[Strand, ...] = ("content", "reasoning", "calls")


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
        written = {strand for each in (*self.rendered, *self.variants) for strand in each.turn.strands}
        return tuple(strand for strand in _STRANDS if strand in written)

    @property
    def shows_calls(self) -> bool:
        return "calls" in self.strands

    @property
    def shows_reasoning(self) -> bool:
        return "reasoning" in self.strands

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
    capabilities = CapabilityProbe(compiled, template.source).capabilities()
    conversation = Conversation(compiled, capabilities, template.source)
    prompts = conversation.prompts()
    rendered: list[RenderedTurn] = []
    variants: list[RenderedTurn] = []
    refusals: dict[str, str] = {}
    for turn in TURNS:
        try:
            found = conversation.rendered(turn, prompts)
        except TemplateError as error:
            refusals[turn.label] = str(error)
            continue
        rendered.append(found[0])
        variants += found[1:]
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
    if not any(other.text.replace(other.turn.reasoning or "", turn.content) == shown.text for other in alike):
        return None
    return replace(shown, turn=replace(turn, content="", reasoning=turn.content))


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
