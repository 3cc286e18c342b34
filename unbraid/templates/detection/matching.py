"""How well a format reads what a template writes."""

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
from .evidence import Evidence, Shown
from .probes import THREE_CALLS, TOOLS, USER, Turn

_TOOLS = Tools(TOOLS)
_PROMPT = 500
"""How much of a prompt's end matters."""


@dataclass(frozen=True)
class Reading:
    """What became of one turn."""

    shown: Shown
    lost: tuple[str, ...]
    """What did not come back."""
    blurred: tuple[str, ...]
    """What is not as it should be, but lost nothing."""
    exact: bool
    """Whether the format writes the turn just as the template does."""
    with_ids: bool
    """Whether the ids came back, where there are any. Some stand where they cannot be waited for."""

    @property
    def clear(self) -> bool:
        """Whether all came back as it should. A key too many in a call takes nothing away."""
        return not self.lost and set(self.blurred) <= {diagnostics.UNEXPECTED_KEY}


@dataclass(frozen=True)
class Match:
    """What became of all turns, read by one format."""

    format: Format
    readings: tuple[Reading, ...]

    @property
    def verified(self) -> bool:
        """Whether every turn that matters comes back. What is merely blurred (a marker that a template forgets where
        there is one call) must be clear in another turn."""
        essential = [each for each in self.readings if each.shown.turn.essential]
        with_calls = [each for each in self.readings if each.shown.turn.calls]
        return (
            bool(essential)
            and not any(each.lost for each in essential)
            and (not with_calls or any(each.clear for each in with_calls))
        )

    @property
    def sound(self) -> bool:
        """Whether nothing has to be forgiven: for a format that was made for the template, and could be made wrong."""
        turns = (each.shown.turn for each in self.readings)
        asked = {turn.label for turn in turns if turn.essential} | {THREE_CALLS.label}
        return all(each.clear for each in self.readings if each.shown.turn.label in asked)

    @property
    def reads_calls(self) -> bool:
        """Whether calls come back that are asked for, if only with their names."""
        return all("calls" not in each.lost for each in self.readings if each.shown.turn.essential)

    @property
    def lost(self) -> int:
        return sum(len(each.lost) for each in self.readings)

    @property
    def blurred(self) -> int:
        return sum(len(each.blurred) for each in self.readings)

    @property
    def exact(self) -> int:
        return sum(each.exact for each in self.readings)


def match(format: Format, evidence: Evidence) -> Match:
    """Read all that the template wrote. Raises `InvalidFormat` where the format contradicts itself."""
    return Match(format, tuple(_read(format, shown, evidence) for shown in evidence.shown))


def may_read(format: Format, evidence: Evidence) -> bool:
    """Whether the format could read the calls at all: the quick answer, for one of the markers must be there."""
    texts = [each.text for each in evidence.shown if each.turn.calls]
    if format.transcript is not None or not texts:
        return format.transcript is None and format.tools is None
    if format.headers is not None:
        # The prompt may have opened one already.
        texts += evidence.prompts
        return any(open in text for open in format.headers.opens for text in texts)
    return any(_opens(node, texts) for node in _ways_to_call(format))


def _ways_to_call(format: Format) -> Iterator[Calls]:
    if format.tools is not None:
        yield format.tools
    yield from format.other_tools


def _opens(node: Calls, texts: list[str]) -> bool:
    return any(open.strip() in text for open in (node.open, *node.also) for text in texts)


def _read(format: Format, shown: Shown, evidence: Evidence) -> Reading:
    """The best that can be made of a turn: templates do not say where it ends."""
    readings = []
    for end in _ends(format, shown, evidence):
        readings.append(_read_up_to(end, format, shown))
        if not readings[-1].lost and not readings[-1].blurred:
            break
    return min(readings, key=lambda each: (len(each.lost), len(each.blurred)))


def _read_up_to(end: int, format: Format, shown: Shown) -> Reading:
    turn = shown.turn
    prompt, text = _reasoning_closed(format, shown.prompt, shown.text[:end])
    parser = Parser(format, tools=_TOOLS, prompt=prompt[-_PROMPT:])
    parser.feed(text)
    parser.finish()
    message = parser.message
    lost, blurred = _differences(turn, message)
    blurred += [diagnostic.kind for diagnostic in message.diagnostics]
    with_ids = not shown.ids or [call.id for call in message.tool_calls] == list(shown.ids)
    exact = not lost and _written(format, shown) == text.strip()
    return Reading(shown, tuple(lost), tuple(blurred), exact, with_ids)


def _differences(turn: Turn, message: Message) -> tuple[list[str], list[str]]:
    content, reasoning = message.content.strip(), message.reasoning.strip()
    lost: list[str] = []
    blurred: list[str] = []
    calls = message.tool_calls
    if [call.name for call in calls] != [call.name for call in turn.calls]:
        lost.append("calls")
    else:
        pairs = [(_value(call), dict(asked.arguments)) for call, asked in zip(calls, turn.calls, strict=True)]
        if any(_bare(here) != _bare(there) for here, there in pairs):
            lost.append("arguments")
        elif any(here != there for here, there in pairs):
            blurred.append("numbers and the like come back as text")
    if turn.content and not content and not turn.reasoning and reasoning == turn.content:
        # The template opens the reasoning, and then writes an answer into it.
        return lost, [*blurred, "the content is taken for reasoning"]
    if message.speech or content != turn.content:
        lost.append("content")
    if reasoning != turn.reasoning:
        lost.append("reasoning")
    return lost, blurred


def _value(call: ToolCall) -> object:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return None


def _bare(value: object) -> object:
    """A value with all that is in it as text: some templates quote everything, or print it as Python does."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return str(value).lower()


# Where a turn ends


def _ends(format: Format, shown: Shown, evidence: Evidence) -> list[int]:
    """Where it may end: at a token that ends the format's turns, at what begins the next one, at what all turns end
    with, or at a token that ends those of other formats."""
    tail = shown.tail
    own = [at for end in format.ends if (at := tail.find(end)) >= 0]
    found = [min(own)] if own else []
    inside = shown.text[: shown.last]
    borders = [tag for tag in turn_borders(evidence) if tag not in inside]
    found += [min(places)] if (places := [at for tag in borders if (at := tail.find(tag)) >= 0]) else []
    if evidence.ending:
        found.append(len(tail) - len(evidence.ending))
    found += [min(others)] if (others := [at for end in known_ends() if (at := tail.find(end)) >= 0]) else []
    return [shown.last + at for at in dict.fromkeys(found)] or [len(shown.text)]


def known_ends() -> set[str]:
    """The tokens that end turns, of whichever format."""
    return {end for format in all_formats() for end in format.ends}


def turn_borders(evidence: Evidence) -> list[str]:
    """The tags between the end of the user's turn and the beginning of the assistant's."""
    prompt = evidence.prompts[0]
    return list(dict.fromkeys(tags(prompt[prompt.rfind(USER) :])))


def _reasoning_closed(format: Format, prompt: str, text: str) -> tuple[str, str]:
    """Where a turn without reasoning begins with the marker that closes it, that belongs to the prompt."""
    around = format.reasoning
    if around is None or format.headers is not None:
        return prompt, text
    close = around.close.strip()
    begin = len(text) - len(text.lstrip())
    if not text.startswith(close, begin) or prompt.rstrip().endswith(around.open.strip()):
        return prompt, text
    end = begin + len(close)
    return prompt + text[:end], text[end:]


def _written(format: Format, shown: Shown) -> str | None:
    """What the format itself would write for the turn."""
    turn = shown.turn
    texts = [Text("reasoning", turn.reasoning), Text("content", turn.content)]
    ids = dict(enumerate(shown.ids))
    calls = [ToolCall(call.name, json.dumps(call.arguments), ids.get(n, "")) for n, call in enumerate(turn.calls)]
    try:
        return render(format, Message((*(text for text in texts if text.text), *calls))).strip()
    except UnbraidError:
        return None
