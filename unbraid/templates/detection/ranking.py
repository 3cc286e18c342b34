"""Which of the formats that read a template it speaks: many are alike, and read each other's output."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.grammar import Format
from ...errors import InvalidFormat
from ...formats import all_formats
from .evidence import Evidence
from .matching import Match, match, may_read


def matches(evidence: Evidence, formats: Iterable[Format] | None = None) -> list[Match]:
    """What each format makes of the template, the best first. Those come first that read it all; where that does not
    decide, the one that has what the template has, and not more; then the one that was registered first."""
    found = []
    for format in all_formats() if formats is None else formats:
        if may_read(format, evidence):
            try:
                found.append(match(format, evidence))
            except InvalidFormat:  # one that was made up on the way
                continue
    return sorted(found, key=lambda each: tuple(_rank(each, evidence).values()))


def what_decided(best: Match, other: Match, evidence: Evidence) -> str:
    """Why the one was preferred to the other."""
    ours, theirs = _rank(best, evidence), _rank(other, evidence)
    return next((why for why in ours if ours[why] != theirs[why]), "it is the first of them")


def _rank(found: Match, evidence: Evidence) -> dict[str, int]:
    """What speaks against a format, the gravest first; each under the words that speak for one that has less of it."""
    format = found.format
    return {
        "it reads what matters": not found.verified,
        "it loses less": found.lost,
        "it reads without a complaint": found.blurred,
        "it has the strands that the template has, and no other": _strangeness(format, evidence),
        "it writes more of it just as the template does": -found.exact,
        "its turns end as the template's do": not _ends_alike(format, evidence),
        "its reasoning is opened where the template opens it": _prompt(format, evidence),
        "it gets the ids back": sum(not each.with_ids for each in found.readings),
    }


def _strangeness(format: Format, evidence: Evidence) -> int:
    """How many strands one of the two has and the other has not."""
    reasoning = evidence.shows_reasoning or names_reasoning(format, evidence)
    return (
        (reasoning != (format.reasoning is not None))
        + (evidence.shows_calls != (format.tools is not None))
        + (format.speech is not None and format.speech.open.strip() not in evidence.template.source)
    )


def names_reasoning(format: Format, evidence: Evidence) -> bool:
    """Whether the template knows the marker that closes the format's reasoning, though it may not write any; for a
    format without reasoning, that of `<think>`."""
    close = "</think>" if format.reasoning is None else format.reasoning.close.strip()
    return close in evidence.template.source or any(prompt.rstrip().endswith(close) for prompt in evidence.prompts)


def _ends_alike(format: Format, evidence: Evidence) -> bool:
    """Whether a turn of the template ends with a token that ends the format's."""
    tails = [each.tail for each in evidence.shown]
    return any(end in tail for end in format.ends for tail in tails)


def _prompt(format: Format, evidence: Evidence) -> int:
    """Whether the prompt opens the reasoning, where the format says that it does: the less, the better."""
    if format.reasoning is None or format.headers is not None:
        return 0
    open = format.reasoning.open.strip()
    opened = [prompt.rstrip().endswith(open) for prompt in evidence.prompts]
    if format.prompt:
        return -1 if any(opened) else 1
    return 1 if opened[0] else 0
