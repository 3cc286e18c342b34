"""Reasons: the verdict of a detection explained in sentences, for users and logs."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.grammar import Between, Format
from .evidence import Evidence
from .matching import Match
from .probes import CALL, TURNS
from .ranking import names_reasoning, what_decided

_MANY = 6
_LABELS = {turn.label for turn in TURNS}


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
        *_about_reasoning(best.format, evidence),
        *about_refusals(evidence),
        *_about_others(verified, evidence),
    )


def about_results(found: Match) -> Iterable[str]:
    """Which probes come back, and which do not."""
    clear = [each.rendered for each in found.results if each.clear]
    whole = [each.label for each in clear if each.turn.label in _LABELS]
    yield f"it reads back what the template writes for {listed(dict.fromkeys(whole))}"
    yield from _about_losses(found)
    remarks = {each.rendered.label: frozenset(each.remarks) for each in found.results if not each.lost}
    for remark in dict.fromkeys(remarks.values()):
        if remark:
            labels = [label for label, said in remarks.items() if said == remark]
            yield f"for {listed(labels)} with a remark: {listed(sorted(remark))}"


def _about_losses(found: Match) -> Iterable[str]:
    for lost in dict.fromkeys(each.lost for each in found.results if each.lost):
        labels = [each.rendered.label for each in found.results if each.lost == lost]
        yield f"the {listed(lost)} cannot be read back as the template writes {listed(labels)}"


def _about_reasoning(format: Format, evidence: Evidence) -> Iterable[str]:
    if evidence.shows_reasoning or format.reasoning is None:
        return
    if names_reasoning(format, evidence):
        yield f"the template writes no reasoning, but knows {quoted(format.reasoning.close)}"
    else:
        yield "the template shows no reasoning; the format would read it"


def about_refusals(evidence: Evidence) -> Iterable[str]:
    """Which probes the template refused."""
    for why in dict.fromkeys(evidence.refusals.values()):
        labels = [label for label, reason in evidence.refusals.items() if reason == why]
        yield f"the template could not be rendered with {listed(labels)}: {' '.join(why.split())}"


def _about_others(verified: list[Match], evidence: Evidence) -> Iterable[str]:
    if len(verified) < 2:
        return
    names = [each.format.name for each in verified[1:]]
    some = listed([*names[:_MANY], *([f"{len(names) - _MANY} more"] if len(names) > _MANY else [])])
    read = "reads" if len(names) == 1 else "read"
    yield f"{some} {read} it as well; {verified[0].format.name} was preferred to {names[0]}, since " + what_decided(
        verified[0], verified[1], evidence
    )


def about_derived(found: Match, like: str, evidence: Evidence) -> tuple[str, ...]:
    """What a derived format consists of."""
    format = found.format
    said = ["no registered format reads what the template writes, so one was derived from it"]
    if like:
        said.append(f"calls are as {like} writes them")
    elif format.tools is not None:
        close = f" and end with {quoted(format.tools.close)}" if format.tools.close.strip() else ""
        said.append(f"calls begin with {quoted(format.tools.open)}{close}")
    if format.reasoning is not None:
        said.append(f"reasoning stands {_between(format.reasoning)}")
    if format.answer is not None:
        said.append(f"content stands {_between(format.answer)}")
    return (*said, *about_results(found), *about_refusals(evidence))


def _between(around: Between) -> str:
    return f"between {quoted(around.open)} and {quoted(around.close)}"


def about_half(found: Match) -> Iterable[str]:
    """What is wrong with a format that reads only the calls."""
    yield "no format reads all that the template writes, and none could be derived from it"
    yield "this one sees the calls"
    yield from _about_losses(found)


def about_missing_calls(evidence: Evidence) -> tuple[str, ...]:
    """Why there are no calls to judge a format by."""
    if CALL.label in evidence.refusals:
        return tuple(about_refusals(evidence))
    told = "tells the model of tools, but " if evidence.describes_tools else ""
    return (f"the template {told}does not write the calls of earlier turns",)
