"""Matching: how well a format parses what a template renders.

Each rendered probe is parsed with the format and compared with the probe. A difference is either a loss (something did
not come back) or a remark (something came back in another form). A template does not say where a turn ends, so several
ends are tried and the best result counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from ...core import diagnostics
from ...core.grammar import Calls, Format
from ...core.message import Message, Text, ToolCall
from ...core.render import render
from ...core.tools import Tools
from ...errors import UnbraidError
from ...formats import all_formats
from ...parsing import Parser
from .affixes import tags
from .evidence import Evidence, RenderedTurn
from .probes import THREE_CALLS, TOOLS, USER, ProbeTurn

_TOOLS = Tools(TOOLS)
_PROMPT_END = 500
"""How many characters of a prompt's end the parser is given."""


@dataclass(frozen=True)
class TurnResult:
    """What a format made of one rendered probe."""

    rendered: RenderedTurn
    lost: tuple[str, ...]
    """The parts that did not come back."""
    remarks: tuple[str, ...]
    """Differences that lose nothing, and diagnostics of the parser."""
    exact: bool
    """Whether the format renders the turn exactly as the template does."""
    with_ids: bool
    """Whether the ids of calls came back. Some templates put them where a parser cannot wait for them."""

    @property
    def faultless(self) -> bool:
        """Whether everything came back as it was. An extra key in a call does not count."""
        return not self.lost and set(self.remarks) <= {diagnostics.UNEXPECTED_KEY}


@dataclass(frozen=True)
class Match:
    """What a format made of all probes."""

    format: Format
    results: tuple[TurnResult, ...]

    @property
    def verified(self) -> bool:
        """Whether every essential probe comes back, and at least one with calls is faultless. A template may forget a
        marker in one turn, but not in all."""
        essential = [each for each in self.results if each.rendered.turn.essential]
        with_calls = [each for each in self.results if each.rendered.turn.calls]
        return (
            bool(essential)
            and not any(each.lost for each in essential)
            and (not with_calls or any(each.faultless for each in with_calls))
        )

    @property
    def faultless(self) -> bool:
        """Whether every essential probe, and the one with three calls, is faultless. Required of derived formats: they
        could be wrong in ways that a registered format is not."""
        turns = (each.rendered.turn for each in self.results)
        asked = {turn.label for turn in turns if turn.essential} | {THREE_CALLS.label}
        return all(each.faultless for each in self.results if each.rendered.turn.label in asked)

    @property
    def reads_calls(self) -> bool:
        """Whether the calls of every essential probe come back, at least their names."""
        return all("calls" not in each.lost for each in self.results if each.rendered.turn.essential)

    @property
    def lost(self) -> int:
        return sum(len(each.lost) for each in self.results)

    @property
    def remarks(self) -> int:
        return sum(len(each.remarks) for each in self.results)

    @property
    def exact(self) -> int:
        return sum(each.exact for each in self.results)


def match(format: Format, evidence: Evidence) -> Match:
    """Try the format on all probes. Raises `InvalidFormat` if the format contradicts itself."""
    return Match(format, tuple(_parse(format, rendered, evidence) for rendered in evidence.rendered))


def may_read(format: Format, evidence: Evidence) -> bool:
    """A quick test: whether the text has any of the markers that open the format's calls."""
    texts = [each.text for each in evidence.rendered if each.turn.calls]
    if format.transcript is not None or not texts:
        return format.transcript is None and format.tools is None
    if format.headers is not None:
        # The prompt may have written the first header.
        texts += evidence.prompts
        return any(open in text for open in format.headers.opens for text in texts)
    return any(_opens(node, texts) for node in _ways_to_call(format))


def _ways_to_call(format: Format) -> Iterator[Calls]:
    if format.tools is not None:
        yield format.tools
    yield from format.other_tools


def _opens(node: Calls, texts: list[str]) -> bool:
    return any(open.strip() in text for open in (node.open, *node.also) for text in texts)


def _parse(format: Format, rendered: RenderedTurn, evidence: Evidence) -> TurnResult:
    """The best result over all places where the turn may end."""
    results = []
    for end in _ends(format, rendered, evidence):
        results.append(_parse_up_to(end, format, rendered))
        if not results[-1].lost and not results[-1].remarks:
            break
    return min(results, key=lambda each: (len(each.lost), len(each.remarks)))


def _parse_up_to(end: int, format: Format, rendered: RenderedTurn) -> TurnResult:
    turn = rendered.turn
    prompt, text = _closing_in_prompt(format, rendered.prompt, rendered.text[:end])
    parser = Parser(format, tools=_TOOLS, prompt=prompt[-_PROMPT_END:])
    parser.feed(text)
    parser.finish()
    message = parser.message
    lost, remarks = _differences(turn, message)
    remarks += [diagnostic.kind for diagnostic in message.diagnostics]
    with_ids = not rendered.ids or [call.id for call in message.tool_calls] == list(rendered.ids)
    exact = not lost and _rendered_by(format, rendered) == text.strip()
    return TurnResult(rendered, tuple(lost), tuple(remarks), exact, with_ids)


def _differences(turn: ProbeTurn, message: Message) -> tuple[list[str], list[str]]:
    content, reasoning = message.content.strip(), message.reasoning.strip()
    lost: list[str] = []
    remarks: list[str] = []
    calls = message.tool_calls
    if [call.name for call in calls] != [call.name for call in turn.calls]:
        lost.append("calls")
    else:
        pairs = [(_arguments(call), dict(asked.arguments)) for call, asked in zip(calls, turn.calls, strict=True)]
        if any(_as_text(here) != _as_text(there) for here, there in pairs):
            lost.append("arguments")
        elif any(here != there for here, there in pairs):
            remarks.append("numbers and the like come back as text")
    if turn.content and not content and not turn.reasoning and reasoning == turn.content:
        # The template opens the reasoning in the prompt, and then shows an answer without closing it.
        return lost, [*remarks, "the content is taken for reasoning"]
    if message.speech or content != turn.content:
        lost.append("content")
    if reasoning != turn.reasoning:
        lost.append("reasoning")
    return lost, remarks


def _arguments(call: ToolCall) -> object:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return None


def _as_text(value: object) -> object:
    """A value with everything in it as text: some templates quote all values, or print them as Python does."""
    if isinstance(value, dict):
        return {key: _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return str(value).lower()


# Where a turn ends


def _ends(format: Format, rendered: RenderedTurn, evidence: Evidence) -> list[int]:
    """Where the turn may end: at an end token of the format, at the beginning of the next turn, at the text with which
    all turns end, or at an end token of another format."""
    tail = rendered.tail
    own = [at for end in format.ends if (at := tail.find(end)) >= 0]
    found = [min(own)] if own else []
    inside = rendered.text[: rendered.last]
    borders = [tag for tag in turn_borders(evidence) if tag not in inside]
    found += [min(places)] if (places := [at for tag in borders if (at := tail.find(tag)) >= 0]) else []
    if evidence.ending:
        found.append(len(tail) - len(evidence.ending))
    found += [min(others)] if (others := [at for end in known_ends() if (at := tail.find(end)) >= 0]) else []
    return [rendered.last + at for at in dict.fromkeys(found)] or [len(rendered.text)]


def known_ends() -> set[str]:
    """The end tokens of all registered formats."""
    return {end for format in all_formats() for end in format.ends}


def turn_borders(evidence: Evidence) -> list[str]:
    """The tags between the user's words and the assistant's turn."""
    prompt = evidence.prompts[0]
    return list(dict.fromkeys(tags(prompt[prompt.rfind(USER) :])))


def _closing_in_prompt(format: Format, prompt: str, text: str) -> tuple[str, str]:
    """Prompt and text, with a closing marker of reasoning at the beginning of the text moved into the prompt. Templates
    write it there for a turn without reasoning."""
    around = format.reasoning
    if around is None or format.headers is not None:
        return prompt, text
    close = around.close.strip()
    begin = len(text) - len(text.lstrip())
    if not text.startswith(close, begin) or prompt.rstrip().endswith(around.open.strip()):
        return prompt, text
    end = begin + len(close)
    return prompt + text[:end], text[end:]


def _rendered_by(format: Format, rendered: RenderedTurn) -> str | None:
    """The turn as the format renders it; None if it cannot."""
    turn = rendered.turn
    texts = [Text("reasoning", turn.reasoning), Text("content", turn.content)]
    ids = dict(enumerate(rendered.ids))
    calls = [ToolCall(call.name, json.dumps(call.arguments), ids.get(n, "")) for n, call in enumerate(turn.calls)]
    try:
        return render(format, Message((*(text for text in texts if text.text), *calls))).strip()
    except UnbraidError:
        return None
