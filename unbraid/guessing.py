"""Which format raw outputs are written in, found by reading them with every registered format.

    guess(["<think>\\nHm.\\n</think>\\n\\nIt rains."])[0].name  # "qwen3", or one that reads the same

A format explains an output if it takes something in it for markup: reasoning, a call, audio codes. What it leaves
unexplained is told: markers of any format that stay in the text, diagnostics, ends of turns that are not its own. The
format that leaves least is the best. Many formats read the same outputs in the same way, and no output can tell these
apart; they are named beside each other (`Guess.same`).

Most formats have none of their markers in an output, and are not tried. Long outputs are read up to `MOST_TEXT`
characters, and of many outputs `MOST_TEXTS` are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from operator import is_
from typing import Any, Literal

from .core.events import Markup, SpeechAudio
from .core.grammar import CallIds, Format
from .core.message import Message, Part, Text, ToolCall
from .core.render import render
from .errors import UnbraidError
from .formats import all_formats
from .parsing import Parser

MOST_TEXT = 20_000
"""How much of an output is read."""
MOST_TEXTS = 200
"""How many outputs are read."""
_TAGS = re.compile(
    r"<[^<>\s]{2,}>|<[|｜][^<>]+>|\[\|[^][]+\|\]|\[/?[A-Z_]{3,}\]|◁[^◁▷]+▷|<[a-z_]{3,}(?==)|\]<\]\w+\[>\["
)
"""Tags as models have them, in the literals of formats."""
_BEFORE_NAMES = tuple(" `\"'(")
"""What stands before a marker that a text names, and not before one that it writes."""
_QUOTES = ("`", '"', "'")


Sure = Literal["certain", "likely", "possible", "partly"]
"""How sure a guess is. Certain: this reading alone leaves nothing over. Likely: others leave nothing over either, but
this format writes the outputs more nearly as they stand. Possible: one of those others. Partly: it leaves some over."""


@dataclass(frozen=True)
class Guess:
    """A format that explains outputs."""

    format: Format
    sure: Sure
    clean: int
    """How many outputs it reads with nothing left over."""
    explains: int
    """How many outputs have something that it takes for markup."""
    outputs: int
    """How many outputs were read."""
    unexplained: tuple[str, ...] = ()
    """What it leaves over, in words, the most frequent first."""
    same: tuple[str, ...] = ()
    """Formats that read all of the outputs just as this one does, whitespace around texts aside."""

    @property
    def name(self) -> str:
        return self.format.name

    def to_json(self) -> dict[str, Any]:
        return {"format": self.name, **{name: getattr(self, name) for name in _SAID}}


_SAID = ("sure", "clean", "explains", "outputs", "unexplained", "same")


def guess(texts: str | Iterable[str], formats: Iterable[Format] | None = None) -> list[Guess]:
    """See `unbraid.guess`."""
    outputs = [texts] if isinstance(texts, str) else list(texts)
    for output in outputs:
        if not isinstance(output, str):
            raise UnbraidError(f"guess takes texts, not {type(output).__name__}: decode tokens and bytes first")
    read = [output[:MOST_TEXT] for output in _sample(outputs) if output.strip()]
    registry = _registry(tuple(all_formats() if formats is None else formats))
    unread = [_Reading((Text("content", text),), left_over=registry.left_in(text)) for text in read]
    readings = [[_read(shape, text, registry) for text in unread] for shape in registry.shapes]
    totals = [_Total(format, readings[shape]) for format, shape in registry.formats]
    return _guesses(sorted((total for total in totals if total.explains), key=_Total.rank), len(read))


def overlooked(format: Format, message: Message) -> list[str]:
    """What a message of a format leaves in its text that other formats would not, in words: markers, and what the best
    of the others reads in it."""
    registry = _registry(tuple(all_formats()))
    markers = Counter(marker for text in _visible(message) for marker in registry.markers(text))
    for end in format.ends:  # its own end is no surprise: the output was written out with it
        del markers[end]
    warnings = [f"`{marker}` stays in the text{_times(count)}" for marker, count in markers.most_common()]
    better = [one for one in guess(message.content) if format.name not in (one.name, *one.same)]
    if better:
        calls = sum(isinstance(part, ToolCall) for part in _parsed(better[0].format, message.content)[0].parts)
        what = f"{calls} call{'s' * (calls > 1)}" if calls else "reasoning"
        warnings.append(f"{what} stayed text: {better[0].name} reads it, {format.name} does not")
    return warnings


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _sample(outputs: Sequence[str]) -> Sequence[str]:
    """Outputs from all over: files are often sorted."""
    return outputs[:: -(-len(outputs) // MOST_TEXTS) or 1]


@dataclass(frozen=True)
class _Reading:
    """What a format makes of one output."""

    parts: tuple[Part, ...]
    explains: bool = False
    left_over: tuple[str, ...] = ()
    strands: int = 0
    """How many calls, and stretches of reasoning or speech."""
    loose: int = 0
    """How many texts have whitespace around them, which other formats may take for part of a marker."""
    exact: int = 0
    """Whether the format writes the message as it stands there: 2, or 1 but for whitespace around it."""
    unused: int = 0
    """How many strands the format has that the output has not."""


@dataclass
class _Total:
    """What a format makes of all outputs."""

    format: Format
    readings: list[_Reading]
    explains: int = field(init=False)
    clean: int = field(init=False)
    left_over: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        self.explains = sum(each.explains for each in self.readings)
        self.clean = sum(each.explains and not each.left_over for each in self.readings)
        self.left_over = Counter(one for each in self.readings for one in each.left_over)

    def rank(self) -> tuple[int, ...]:
        """Its defects, the gravest first."""
        return (
            -self.clean,
            self.left_over.total(),
            -self.explains,
            -sum(each.strands for each in self.readings),
            self.format.reasoning_in_content,
            sum(each.loose for each in self.readings),
            -sum(each.exact for each in self.readings),
            sum(each.unused for each in self.readings),
        )

    @property
    def meaning(self) -> list[tuple[object, ...]]:
        return [tuple(map(_without_space, each.parts)) for each in self.readings]


def _without_space(part: Part) -> object:
    return (part.strand, part.text.strip()) if isinstance(part, Text) else part


def _guesses(totals: Sequence[_Total], outputs: int) -> list[Guess]:
    groups: list[list[_Total]] = []
    for total in totals:
        group = next((each for each in groups if _alike(each[0], total)), None)
        if group is None:
            groups.append([total])
        else:
            group.append(total)
    most = max((total.explains for total in totals), default=0)
    whole = sum(group[0].clean == most for group in groups)
    return [
        Guess(
            best.format,
            _sure(best.clean == most, whole, number),
            best.clean,
            best.explains,
            outputs,
            tuple(f"{what}{_times(count)}" for what, count in best.left_over.most_common()),
            tuple(total.format.name for total in others),
        )
        for number, (best, *others) in enumerate(groups)
    ]


def _alike(one: _Total, other: _Total) -> bool:
    return one.left_over == other.left_over and one.meaning == other.meaning


def _sure(is_whole: bool, whole: int, number: int) -> Sure:
    if not is_whole:
        return "partly"
    if whole == 1:
        return "certain"
    return "possible" if number else "likely"


# One output


def _read(shape: _Shape, unread: _Reading, registry: _Registry) -> _Reading:
    """What a format makes of an output, which is `unread` before: all of it content."""
    (content,) = unread.parts
    text = content.text if isinstance(content, Text) else ""
    if not shape.openings.search(text):
        return unread
    format = shape.format
    text, foreign_end = _without_end(format, text, registry)
    message, markup = _parsed(format, text)
    strands = sum(map(_is_more, message.parts))
    if not strands or not markup or _only_named(format, message, text) or _in_passing(format, message):
        return unread
    left_over = [each for text in _visible(message) for each in registry.left_in(text)]
    left_over += [f"{each.kind}: {each.message}" for each in message.diagnostics]
    left_over += [f"`{foreign_end}` ends no turn of it"] if foreign_end else []
    loose = sum(isinstance(part, Text) and part.text != part.text.strip() for part in message.parts)
    exact, unused = _exact(format, message, text), _unused(format, message)
    return _Reading(message.parts, True, tuple(left_over), strands, loose, exact, unused)


def _parsed(format: Format, text: str) -> tuple[Message, bool]:
    """The message, and whether anything was taken for markup, or for audio."""
    parser = Parser(format, markup=True, seed=0)
    events = [*parser.feed(text), *parser.finish(end_of_turn=True)]
    return parser.message, any(isinstance(event, Markup | SpeechAudio) for event in events)


def _is_more(part: Part) -> bool:
    """Whether a part is more than an answer."""
    if isinstance(part, ToolCall):
        return part.complete
    return not isinstance(part, Text) or part.strand == "reasoning"


def _only_named(format: Format, message: Message, text: str) -> bool:
    """Whether the text names the markers of a reasoning that no prompt opened: a prompt is assumed, and then everything
    up to `</think>` would be reasoning."""
    if format.reasoning is None or not format.prompt or not message.reasoning:
        return False
    open, close = format.reasoning.open.strip(), format.reasoning.close.strip()
    before = text.partition(close)[0][-1:]
    return bool(open) and (open in message.reasoning or before in _BEFORE_NAMES)


def _in_passing(format: Format, message: Message) -> bool:
    """Whether the answer goes on after a call without a marker: then it is an example, or code."""
    if format.tools is None or not format.tools.bare or not message.tool_calls:
        return False
    last = message.parts[-1]
    return isinstance(last, Text) and bool(last.text.strip())


def _without_end(format: Format, text: str, registry: _Registry) -> tuple[str, str]:
    """The text up to the token that ends the turn, where it was written out; and that token, if the format has no such
    end."""
    stripped = text.rstrip()
    if not stripped.endswith(registry.ends):
        return text, ""
    end = max((end for end in registry.ends if stripped.endswith(end)), key=len)
    return stripped.removesuffix(end), "" if end in format.ends else end


def _visible(message: Message) -> Iterator[str]:
    """What a reader sees."""
    yield message.content
    yield message.reasoning
    yield from (speech.text for speech in message.speech)


def _exact(format: Format, message: Message, text: str) -> int:
    try:
        ours = render(format, message)
    except UnbraidError:
        return 0
    return (ours == text) + (ours.strip() == text.strip())


def _unused(format: Format, message: Message) -> int:
    return (
        (format.reasoning is not None and not message.reasoning)
        + (format.tools is not None and not message.tool_calls)
        + (format.speech is not None and not message.speech)
    )


# What formats write


@dataclass(frozen=True, eq=False)
class _Shape:
    """A grammar without its name: many families have the same."""

    format: Format
    openings: re.Pattern[str]
    """What an output must have, if the format is to explain any of it."""


@dataclass(frozen=True, eq=False)
class _Registry:
    """Formats, made ready to be tried."""

    formats: tuple[tuple[Format, int], ...]
    """Each with the number of its shape."""
    shapes: tuple[_Shape, ...]
    ends: tuple[str, ...]
    tags: re.Pattern[str]

    def markers(self, text: str) -> list[str]:
        """Markers of any format in a text, but for those that it only names: in code, in quotes."""
        return [tag.group() for tag in self.tags.finditer(text) if text[tag.start() - 1 : tag.start()] not in _QUOTES]

    def left_in(self, text: str) -> tuple[str, ...]:
        """The same in words."""
        return tuple(f"`{marker}` stays in the text" for marker in self.markers(text))


_registries: list[tuple[tuple[Format, ...], _Registry]] = []
"""The last one that was made. Formats are told apart by identity: to compare them takes longer than to try them."""


def _registry(formats: tuple[Format, ...]) -> _Registry:
    for members, registry in _registries:
        if len(members) == len(formats) and all(map(is_, members, formats)):
            return registry
    _registries[:] = [(formats, registry := _make_registry(formats))]
    return registry


def _make_registry(formats: tuple[Format, ...]) -> _Registry:
    shapes: dict[Format, int] = {}
    numbered = []
    for format in formats:
        shape = replace(format, name="", call_ids=CallIds(), versions=())
        numbered.append((format, shapes.setdefault(shape, len(shapes))))
    ends = tuple(dict.fromkeys(end for format in formats for end in format.ends))
    tags = _any_of(tag for format in formats for literal in _literals(format) for tag in _TAGS.findall(literal))
    return _Registry(tuple(numbered), tuple(_Shape(shape, _openings(shape)) for shape in shapes), ends, tags)


def _openings(format: Format) -> re.Pattern[str]:
    strands = (format.reasoning, format.tools, *format.other_tools, format.headers, format.speech, format.transcript)
    literals = [literal.strip() for strand in strands for literal in _literals(strand)]
    return _any_of(literal.partition("{}")[0] for literal in literals)


def _literals(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from _literals(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for each in fields(node):
            yield from _literals(getattr(node, each.name))


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the words, the longest first; for nothing, if there are none."""
    listed = sorted({word for word in words if word}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, listed)) or r"(?!)")
