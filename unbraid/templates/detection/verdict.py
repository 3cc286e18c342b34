"""The verdict of a detection: which format, how it was found, and the reasons.

What the template shows decides how it is judged. Rendered calls are the best evidence, then words in its source; a
template without tools is plain. Nothing is guessed silently: a format is `verified` only if it read back what the
template rendered. A marker in the source is a hint and proves nothing. Hugging Face's `response_template` is a second
opinion, and the only one if there is no template.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from ...core.grammar import Call, CallPart, CallsBody, Either, Format, Maybe
from ...formats import all_formats, find
from ..errors import DetectionError
from ..sources import DetectionInput
from ..template import ChatTemplate
from .affixes import tags
from .evidence import STRANDS, Evidence, gather
from .matching import Match, match, names_reasoning, prompt_shows_reasoning, ranked_matches, with_start
from .proposals import proposals
from .reasons import (
    about_derived,
    about_half,
    about_match,
    about_missing_calls,
    about_nearest,
    about_refusals,
    about_results,
    about_start,
    quoted,
)
from .response_template import format_from_response_template
from .result import Detection

_UNREAD = "the template writes calls in a way that no format reads, and that none could be derived from"
_STATED = "the tokenizer's response_template says so"


def detect_in(input: DetectionInput) -> Detection:
    """The format of a model's templates. The one for tools is asked first: it shows more."""
    stated, problem = _stated(input)
    if not input.templates:
        return _only_stated(stated, problem)
    detections: list[Detection] = []
    errors: list[DetectionError] = []
    for name in sorted(input.templates, key=lambda name: (name != "tool_use", name != "default")):
        try:
            detections.append(_of_template(input.templates[name], stated))
        except DetectionError as error:
            errors.append(error)
        if detections and detections[-1].verified and detections[-1].how != "plain":
            break
    if not detections:
        raise errors[0]
    best = min(detections, key=lambda each: (not each.verified, each.how == "plain", each.format is None))
    return best if problem is None else replace(best, reasons=(*best.reasons, str(problem)))


def judge_in(input: DetectionInput, format: Format) -> Detection:
    """Whether a format reads back what a model's templates write, and why not."""
    if not input.templates:
        raise DetectionError("there is no template to go by")
    detections: list[Detection] = []
    for template in input.templates.values():
        evidence = gather(template)
        seen = match(format, evidence)
        reasons = (*about_results(seen), *about_refusals(evidence))
        detections.append(Detection(format, seen.verified, "rendered", reasons, strands=evidence.strands))
    return min(detections, key=lambda each: each.verified)


def _stated(input: DetectionInput) -> tuple[Format | None, DetectionError | None]:
    """The format of the tokenizer's response_template, or why it cannot be used."""
    if input.response_template is None:
        return None, None
    try:
        return format_from_response_template(input.response_template, input.eos_token), None
    except DetectionError as error:
        return None, error


def _only_stated(stated: Format | None, problem: DetectionError | None) -> Detection:
    if stated is None:
        raise problem or DetectionError("there is no template to go by")
    return Detection(stated, False, "response_template", (_STATED, "there is no chat template to verify it with"))


def _of_template(template: ChatTemplate, stated: Format | None) -> Detection:
    evidence = gather(template)
    detection = replace(_by_evidence(evidence, stated), strands=evidence.strands)
    if detection.format is not None and prompt_shows_reasoning(detection.format, evidence):
        shown = {*evidence.strands, "reasoning"}
        detection = replace(detection, strands=tuple(strand for strand in STRANDS if strand in shown))
    if detection.format is None or (format := with_start(detection.format, evidence)) == detection.format:
        return detection
    return replace(detection, format=format, reasons=(*detection.reasons, about_start(format)))


def _by_evidence(evidence: Evidence, stated: Format | None) -> Detection:
    if "content" not in evidence.strands:
        why = ("the template shows no answer of the assistant's", *about_refusals(evidence))
        return Detection(None, False, "none", why)
    if evidence.shows_calls:
        return _by_calls(evidence, stated)
    if evidence.describes_tools or marker_hints(evidence) or (stated is not None and stated.tools is not None):
        return _without_calls(evidence, stated)
    return _without_tools(evidence, stated)


def _by_calls(evidence: Evidence, stated: Format | None) -> Detection:
    """The template shows calls, so formats can be tried on them."""
    matches = ranked_matches(evidence)
    verified = [each for each in matches if each.verified]
    if verified:
        others = tuple(each.format.name for each in verified[1:])
        reasons = (*about_match(verified, evidence), *_about_stated(stated, evidence))
        return Detection(verified[0].format, True, "rendered", reasons, others)
    if stated is not None and (seen := match(stated, evidence)).verified:
        return Detection(stated, True, "response_template", (_STATED, *about_results(seen)))
    if (derived := _derived(evidence)) is not None:
        return replace(derived, reasons=(*derived.reasons, *_about_stated(stated, evidence)))
    near = nearest_formats(matches, evidence)
    half = next((each for each in matches if each.reads_calls), None)
    why = (*about_refusals(evidence), *_about_stated(stated, evidence))
    if half is not None:
        return Detection(half.format, False, "rendered", (*about_half(half), *why), near[1:])
    return Detection(None, False, "none", (_UNREAD, *_about_nearest(matches, evidence), *why), near)


def _without_calls(evidence: Evidence, stated: Format | None) -> Detection:
    """The model can call tools, but the template does not show calls."""
    why = about_missing_calls(evidence)
    if stated is not None:
        return Detection(stated, False, "response_template", (_STATED, *why))
    return _by_markers(evidence, why) or Detection(None, False, "none", why)


def _by_markers(evidence: Evidence, why: tuple[str, ...]) -> Detection | None:
    hints = marker_hints(evidence)
    if not hints:
        return None
    best = hints[0]
    others = tuple(dict.fromkeys(each.format.name for each in hints if each.format != best.format))[:MOST]
    return Detection(best.format, False, "markers", (*why, str(best)), others)


def _without_tools(evidence: Evidence, stated: Format | None) -> Detection:
    """The template has no tools, so there is content, and perhaps reasoning."""
    why = "the template has no place for tools"
    if stated is not None and (seen := match(stated, evidence)).verified:
        return Detection(stated, True, "response_template", (_STATED, why, *about_results(seen)))
    matches = ranked_matches(evidence)
    verified = [each for each in matches if each.verified]
    if evidence.shows_reasoning:
        if verified:
            return Detection(verified[0].format, True, "rendered", (why, *about_match(verified, evidence)))
        if (derived := _derived(evidence)) is not None:
            return replace(derived, reasons=(why, *derived.reasons))
        unread = "it writes reasoning in a way that no format reads, and that none could be derived from"
        return Detection(None, False, "none", (why, unread, *_about_nearest(matches, evidence)))
    named = [each for each in verified if names_reasoning(each.format, evidence)]
    if shown := [each for each in named if prompt_shows_reasoning(each.format, evidence)]:
        return Detection(shown[0].format, True, "rendered", (why, *about_match(shown, evidence)))
    if named and (reasoning := named[0].format.reasoning) is not None:
        words = f"it writes no reasoning, but knows {quoted(reasoning.close)}"
        return Detection(named[0].format, False, "markers", (why, words))
    plain = match(Format("plain"), evidence)
    if plain.verified:
        return Detection(plain.format, True, "plain", (why, "it writes no reasoning: all output is content"))
    if (derived := _derived(evidence)) is not None:
        return replace(derived, reasons=(why, *derived.reasons))
    return Detection(plain.format, False, "plain", (why, *about_nearest([plain])))


def _derived(evidence: Evidence) -> Detection | None:
    """A format derived from the template, if it reads every turn, also those that it was not derived from."""
    proposed = _proposed(evidence)
    matches = [each for each in ranked_matches(evidence, proposed) if each.verified and each.sound]
    if not matches:
        return None
    # Prefer calls of a registered format: it reads more spellings than one template shows.
    best = next((each for each in matches if proposed[each.format] and each.remarks == matches[0].remarks), matches[0])
    reasons = about_derived(best, proposed[best.format], evidence)
    # Some templates describe one format to the model and write another for earlier turns.
    hints = marker_hints(evidence)[:1]
    return Detection(
        best.format, True, "derived", (*reasons, *map(str, hints)), tuple(hint.format.name for hint in hints)
    )


def _proposed(evidence: Evidence) -> dict[Format, str]:
    """The formats that the template leads to, and whose calls they use."""
    formats: dict[Format, str] = {}
    for each in proposals(evidence):
        formats.setdefault(each.format, each.like)
    return formats


def _about_nearest(matches: list[Match], evidence: Evidence) -> tuple[str, ...]:
    """What the best format, registered or derived, does not read."""
    tried = [*ranked_matches(evidence, _proposed(evidence)), *matches]
    return tuple(about_nearest(sorted(tried, key=lambda each: each.lost)))


def _about_stated(stated: Format | None, evidence: Evidence) -> tuple[str, ...]:
    if stated is None:
        return ()
    agrees = match(stated, evidence).verified
    return ("the tokenizer's response_template " + ("reads it too" if agrees else "does not read what it writes"),)


_TELLTALES = (("lfm2", ("<|tool_list_start|>", "List of tools: [")),)
"""Words of templates that describe tools and never show a call."""
MOST = 3
"""How many names to suggest."""


@dataclass(frozen=True)
class MarkerHint:
    """A format, and the words of the template that point to it."""

    format: Format
    words: tuple[str, ...]

    def __str__(self) -> str:
        quoted = [f"`{word}`" for word in self.words]
        return f"its text has {' and '.join(quoted)}, as templates of {self.format.name} have"


def marker_hints(evidence: Evidence) -> list[MarkerHint]:
    """The formats whose call markers occur in the template, the likeliest first."""
    source = evidence.template.source
    hints = []
    for format in all_formats():
        markers = list(dict.fromkeys(_markers(format)))
        there = [marker for marker in markers if marker in source]
        if there and there[0] == markers[0]:
            speaks = format.speech is None or bool(format.speech.open and format.speech.open.strip() in source)
            reasons = (format.reasoning is not None) == names_reasoning(format, evidence)
            hints.append((speaks, len(there) / len(markers), len(there), reasons, MarkerHint(format, tuple(there))))
    hints.sort(key=lambda each: each[:4], reverse=True)
    telling = [
        MarkerHint(find(name), tuple(word for word in words if word in source))
        for name, words in _TELLTALES
        if any(word in source for word in words)
    ]
    return [*telling, *(each[-1] for each in hints)]


def nearest_formats(matches: list[Match], evidence: Evidence) -> tuple[str, ...]:
    """Names of formats to suggest if none reads the template: those that read its calls, then those whose markers look
    like the ones it writes."""
    reading = [each.format.name for each in matches if each.reads_calls]
    openers: dict[str, list[str]] = {}
    for format in all_formats():
        if marker := next(_markers(format), ""):
            openers.setdefault(marker, []).append(format.name)
    shown = dict.fromkeys(tag for each in evidence.rendered if each.turn.calls for tag in tags(each.text))
    alike = [name for tag in shown for marker in get_close_matches(tag, openers, MOST) for name in openers[marker]]
    return tuple(dict.fromkeys((*reading, *alike)))[:MOST]


def _markers(format: Format) -> Iterator[str]:
    """The tags of a format's calls, the opening one first."""
    if format.tools is None or format.tools.bare or format.headers is not None:
        return
    yield from tags(format.tools.open) or [format.tools.open.strip()]
    yield from tags(format.tools.close)
    for part in _parts(format.tools.body):
        if isinstance(part, str):
            yield from tags(part)
        elif isinstance(part, Maybe):
            yield from tags(part.marker)


def _parts(body: CallsBody) -> tuple[CallPart, ...]:
    if isinstance(body, Either):
        return _parts(body.second)
    return body.parts if isinstance(body, Call) else body.call.parts
