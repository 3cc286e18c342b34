"""Ranking: which of the formats that read a template is its own. Many formats read each other's output.

A format is ranked by a list of defects, the gravest first (`_rank`). The keys of that list are the words with which the
verdict explains its choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...core.grammar import Format, SpeechMarkup
from ...errors import InvalidFormat
from ...formats import all_formats, find
from .matching import Match, match, may_read, opens_calls
from .probing.evidence import Evidence

_suffixes = re.compile(r"<\w+:(\w+)>").findall


def ranked_matches(evidence: Evidence, formats: Iterable[Format] | None = None) -> list[Match]:
    """The matches of all formats that may read the template, the best first. Equal ones stay in the order in which they
    were registered."""
    found = []
    for format in _registered(evidence) if formats is None else formats:
        if may_read(format, evidence):
            try:
                found.append(match(format, evidence, registered=formats is None))
            except InvalidFormat:  # a derived one that contradicts itself
                continue
    return sorted(found, key=lambda each: tuple(_rank(each, evidence).values()))


def _registered(evidence: Evidence) -> Iterator[Format]:
    """The registered formats, also with a suffix to their tags that this template has (`<tool_calls:opensource>`)."""
    yield from all_formats()
    texts = [each.text for each in evidence.rendered]
    for suffix in dict.fromkeys(suffix for text in texts for suffix in _suffixes(text)):
        for format in all_formats():
            changed = find(f"{format.name}:{suffix}")
            if replace(changed, name=format.name) != format:
                yield changed


def what_decided(best: Match, other: Match, evidence: Evidence) -> str:
    """The first criterion in which one match is better than the other."""
    ours, theirs = _rank(best, evidence), _rank(other, evidence)
    return next((why for why in ours if ours[why] != theirs[why]), "it is the first of them")


def _rank(found: Match, evidence: Evidence) -> dict[str, int]:
    """The defects of a match, the gravest first. Each key says what a format with less of it does better."""
    format = found.format
    return {
        "it reads what matters": not found.verified,
        "it loses less": found.lost,
        "it reads without a complaint": found.remarks,
        "it is its own way to write calls, and not another that it reads": not opens_calls(format, evidence),
        "it has the strands that the template has, and no other": _foreign_strands(format, evidence),
        "it writes more of it just as the template does": -found.exact,
        "its turns end as the template's do": not _ends_alike(format, evidence),
        "its reasoning is opened where the template opens it": _prompt_opens(format, evidence),
        "it gets the ids back": sum(not each.with_ids for each in found.results),
    }


def _foreign_strands(format: Format, evidence: Evidence) -> int:
    """How many strands either the format or the template has, but not both."""
    reasoning = evidence.shows_reasoning or names_reasoning(format, evidence)
    return (
        (reasoning != (format.reasoning is not None))
        + (evidence.shows_calls != (format.tools is not None))
        + (format.speech is not None and not _names_speech(format.speech, evidence))
    )


def _names_speech(speech: SpeechMarkup, evidence: Evidence) -> bool:
    """Whether the template mentions the marker that opens speech."""
    return bool(speech.open) and speech.open.strip() in evidence.template.source


def names_reasoning(format: Format, evidence: Evidence) -> bool:
    """Whether the template mentions the marker that closes the format's reasoning; for a format without reasoning,
    `</think>`."""
    close = "</think>" if format.reasoning is None else format.reasoning.close.strip()
    return close in evidence.template.source or any(prompt.rstrip().endswith(close) for prompt in evidence.prompts)


def _ends_alike(format: Format, evidence: Evidence) -> bool:
    """Whether a rendered turn ends with one of the format's end tokens."""
    tails = [each.tail for each in evidence.rendered]
    return any(end in tail for end in format.ends for tail in tails)


def _prompt_opens(format: Format, evidence: Evidence) -> int:
    """How well the prompt agrees with the format about who opens the reasoning; less is better."""
    if format.reasoning is None or format.headers is not None:
        return 0
    open = format.reasoning.open.strip()
    opened = [prompt.rstrip().endswith(open) for prompt in evidence.prompts]
    if format.prompt:
        return -1 if any(opened) else 1
    return 1 if opened[0] else 0
