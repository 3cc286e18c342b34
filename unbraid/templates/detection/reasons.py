"""Reasons: the verdict of a detection in sentences, for users and logs."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.grammar import Between, Format
from .evidence import Evidence
from .matching import Match, names_reasoning, prompt_shows_reasoning, what_decided
from .probes import CALL, RenderedTurn

_MANY = 6


def listed(words: Iterable[str], joint: str = "and") -> str:
    """`a, b and c`."""
    several = list(words)
    return f" {joint} ".join(filter(None, (", ".join(several[:-1]), *several[-1:])))


def quoted(text: str) -> str:
    return f"`{text.strip()}`"


def about_match(verified: list[Match], evidence: Evidence) -> tuple[str, ...]:
    """Why the first of several matches was chosen."""
    best = verified[0]
    return (
        *about_results(best),
        *_about_swapped(evidence),
        *_about_reasoning(best.format, evidence),
        *about_refusals(evidence),
        *_about_others(verified, evidence),
    )


def about_results(match: Match) -> Iterable[str]:
    """Which probes come back, and which do not."""
    clear = [each.rendered for each in match.results if each.clear]
    yield f"it reads back what the template writes for {_labels(clear)}"
    if match.verified:
        yield f"the template writes {listed(match.written)}, and all of it comes back"
    yield from _about_losses(match)
    remarks = [(each.rendered, frozenset(each.remarks)) for each in match.results if not each.lost and each.remarks]
    for remark in dict.fromkeys(text for _, text in remarks):
        turns = [rendered for rendered, text in remarks if text == remark]
        yield f"for {_labels(turns)} with a remark: {listed(sorted(remark))}"
    if ended := [each.rendered for each in match.results if each.cut_short]:
        yield f"the template ends the turn before it has written all of {_labels(ended)}"


def _about_losses(match: Match) -> Iterable[str]:
    for lost in dict.fromkeys(each.lost for each in match.results if each.lost):
        turns = [each.rendered for each in match.results if each.lost == lost]
        yield f"the {listed(lost)} cannot be read back as the template writes {_labels(turns)}"


def _labels(turns: Iterable[RenderedTurn]) -> str:
    """The names of probes. Other circumstances are only named if a probe is there for them alone."""
    usual = {each.turn.label: None for each in turns if not each.circumstance}
    others: dict[str, list[str]] = {}
    for each in turns:
        if each.circumstance and each.turn.label not in usual:
            others.setdefault(each.circumstance, []).append(each.turn.label)
    also = [f"{listed(_some(labels))} {circumstance}" for circumstance, labels in others.items()]
    return "; ".join(filter(None, (listed(usual), *also)))


def _some(names: list[str]) -> list[str]:
    """The first few, and how many more there are."""
    return names if len(names) <= _MANY else [*names[:_MANY], f"{len(names) - _MANY} more"]


def _about_reasoning(format: Format, evidence: Evidence) -> Iterable[str]:
    if evidence.shows_reasoning or format.reasoning is None:
        return
    if prompt_shows_reasoning(format, evidence):
        yield f"the template writes {quoted(format.reasoning.open)} or {quoted(format.reasoning.close)} in its prompt"
    elif names_reasoning(format, evidence):
        yield f"the template writes no reasoning, but knows {quoted(format.reasoning.close)}"
    else:
        yield "the template shows no reasoning; the format would read it"


def about_start(format: Format) -> str:
    """Where the output starts, if the family's usually starts elsewhere."""
    prompt = f"ends with {quoted(format.prompt)}" if format.prompt else "opens no reasoning"
    return f"the template's prompt {prompt} by default; the format starts there if it is given no prompt"


def _about_swapped(evidence: Evidence) -> Iterable[str]:
    if evidence.swapped:
        yield f"the template writes the content as it writes reasoning for {listed(_some(list(evidence.swapped)))}"


def about_refusals(evidence: Evidence) -> Iterable[str]:
    """Which probes the template refused."""
    for why in dict.fromkeys(evidence.refusals.values()):
        labels = [label for label, reason in evidence.refusals.items() if reason == why]
        yield f"the template could not be rendered with {listed(labels)}: {' '.join(why.split())}"


def _about_others(verified: list[Match], evidence: Evidence) -> Iterable[str]:
    if len(verified) < 2:
        return
    names = [each.format.name for each in verified[1:]]
    read = "reads" if len(names) == 1 else "read"
    yield (
        f"{listed(_some(names))} {read} it as well; {verified[0].format.name} was preferred to {names[0]}, since "
        + what_decided(verified[0], verified[1], evidence)
    )


def about_derived(match: Match, like: str, evidence: Evidence) -> tuple[str, ...]:
    """What a derived format consists of."""
    format = match.format
    remarks = ["no registered format reads what the template writes, so one was derived from it"]
    if like:
        remarks.append(f"calls are as {like} writes them")
    elif format.tools is not None:
        close = f" and end with {quoted(format.tools.close)}" if format.tools.close.strip() else ""
        remarks.append(f"calls begin with {quoted(format.tools.open)}{close}")
    if format.reasoning is not None:
        remarks.append(f"reasoning stands {_between(format.reasoning)}")
    if format.answer is not None:
        remarks.append(f"content stands {_between(format.answer)}")
    return (*remarks, *about_results(match), *about_refusals(evidence))


def _between(around: Between) -> str:
    return f"between {quoted(around.open)} and {quoted(around.close)}"


def about_half(match: Match) -> Iterable[str]:
    """What is wrong with a format that reads only the calls."""
    yield f"the template writes {listed(match.written)}, no format reads all of it, and none could be derived from it"
    yield "this one sees the calls"
    yield from _about_losses(match)


def about_nearest(matches: Iterable[Match]) -> Iterable[str]:
    """What is wrong with the format that reads most, if it reads anything."""
    for each in matches:
        if any(not result.lost for result in each.results):
            yield from (f"as {each.format.name!r} reads it, {why}" for why in _about_losses(each))
            return


def about_missing_calls(evidence: Evidence) -> tuple[str, ...]:
    """Why there are no calls to judge a format by."""
    if CALL.label in evidence.refusals:
        return tuple(about_refusals(evidence))
    prefix = "tells the model of tools, but " if evidence.describes_tools else ""
    return (f"the template {prefix}does not write the calls of earlier turns",)
