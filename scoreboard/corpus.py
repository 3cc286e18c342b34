"""Messages drawn by a seed, and the text that the vendor's own template writes for each.

A message is a `Turn`. What a template itself loses of it (`Template.losses`) is not meant. Where no vendor's template
can be had, the format's grammar writes the text, and the message says so (`Meant.source`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import unbraid
from tests.formats.vendors.rendering import ArgumentsAs, Template, render
from tests.formats.vendors.rendering import written as template_output
from tests.formats.vendors.templates import TEMPLATES
from tests.formats.vendors.turns import USER, Turn
from tests.support.places import SHARED
from tests.support.strategies import markers_of
from unbraid import Format

SEED = 52067
"""Of the published board. Another one draws other messages of the same kinds."""

WORDS = ["the", "weather", "in", "Paris", "is", "mild", "and", "clear", "while", "rain", "falls", "over", "Tōkyō"]
WORDS += ["and", "snow", "covers", "the", "hills"]
UNICODE = ("天气", "😀", "é", "ñandú", "Übergröße", "\u200b", "🏳️‍🌈", "\u2028", "ﷺ", "\x7f")
ESCAPES = ('"', "\\", "\n", "\t", "\\n", '\\"', "'", "/", "\\u00e9", "\r\n", "\x08", "{", "}", "[", "]", ",", ":")
ELSEWHERE = ("</tool_call>", "<tool_call>", "[TOOL_CALLS]", "<think>", "</think>", "<|im_end|>", "<function=now>")
SCHEMAS: dict[str, dict[str, str]] = {
    "get_weather": {"city": "string", "days": "integer"},
    "write_file": {"path": "string", "text": "string"},
    "search": {
        "limit": "integer",
        "ratio": "number",
        "exact": "boolean",
        "tags": "array",
        "filters": "object",
        "query": "string",
    },
    "now": {},
}

RECIPIENT = re.compile(r" to=([\w.]+)<\|channel\|>commentary json(?=<\|message\|>)")
"""gpt-oss's template writes who is called before the channel; OpenAI's own library writes it behind, as models do."""
EITHER = ("granite-3", "olmo-3")
"""Formats whose models reason or call tools, and not both in one message."""


def _property(key: str, kind: str) -> dict[str, Any]:
    items = {"items": {"type": "string"}} if kind == "array" else {}
    return {"type": kind, "description": f"The {key}.", **items}


def _tool(name: str, properties: dict[str, str]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {key: _property(key, kind) for key, kind in properties.items()},
        "required": [],
    }
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


TOOLS = [_tool(name, properties) for name, properties in SCHEMAS.items()]


@dataclass(frozen=True)
class Meant:
    """One message: what was meant, and the text that says it."""

    format: str
    kind: str
    number: int
    source: str
    """The vendor's template, or "ours"."""
    turn: Turn
    prompt: str
    text: str
    end: str
    """The token that ends the turn, if it has one. It is no part of the text."""
    plain: tuple[str, ...] = ()
    """Stretches of the text that are no markup whatever they spell: a model writes them in ordinary tokens."""
    after: str = ""
    """Text that follows the calls."""
    offered: bool = True
    """Whether the tools that are called are offered."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the template was told, apart from messages and tools."""

    @property
    def name(self) -> str:
        return f"{self.format}:{self.kind}:{self.number}"


# What the messages say


@dataclass(frozen=True)
class Drawn:
    turn: Turn
    plain: tuple[str, ...] = ()
    after: str = ""
    offered: bool = True


Draw = Callable[[random.Random, Format], Drawn]


def _sentence(rng: random.Random, words: int = 12) -> str:
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, words)))
    return f"{text[0].upper()}{text[1:]} {rng.randint(0, 9999)}."


def _lines(rng: random.Random, count: int = 4) -> str:
    return "\n".join(_sentence(rng) for _ in range(rng.randint(2, count)))


def _weather(rng: random.Random) -> tuple[str, str]:
    return _call("get_weather", {"city": rng.choice(["Paris", "Tōkyō", "São Paulo"]), "days": rng.randint(1, 9)})


def _file(rng: random.Random, text: str) -> tuple[str, str]:
    return _call("write_file", {"path": f"notes/{rng.randint(0, 9999)}.txt", "text": text})


def _call(name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    return name, json.dumps(arguments, ensure_ascii=False)


def _answer(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(_lines(rng)))


def _one_call(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(calls=(_file(rng, _lines(rng)),)))


def _calls(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(calls=(_weather(rng), _file(rng, _sentence(rng)), _weather(rng))[: rng.randint(2, 3)]))


def _text_and_call(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(_sentence(rng), (_file(rng, _sentence(rng)),)))


def _reasoned(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(_sentence(rng), reasoning=_lines(rng)))


def _reasoned_calls(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(calls=(_weather(rng), _file(rng, _sentence(rng)))[: rng.randint(1, 2)], reasoning=_lines(rng)))


def _nested(rng: random.Random, format: Format) -> Drawn:
    filters = {"a": {"b": [1, {"c": None}], "d": -1.5e-3}, "e": [], "f": {}, "g": [[True, False], ["x"]]}
    arguments = {
        "limit": rng.choice([0, -7, 12345678901234567890]),
        "ratio": rng.choice([0.5, -1.25, 1e-7]),
        "exact": rng.choice([True, False]),
        "tags": [_sentence(rng, 3), "", "a, b"],
        "filters": filters,
        "query": _sentence(rng),
    }
    return Drawn(Turn(calls=(_call("search", arguments),)))


def _no_arguments(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(calls=(("now", "{}"), _weather(rng))))


def _empty_string(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(calls=(_call("write_file", {"path": "a.txt", "text": ""}), _weather(rng))))


def _unicode(rng: random.Random, format: Format) -> Drawn:
    parts = [rng.choice(UNICODE + ESCAPES) if rng.random() < 0.6 else rng.choice(WORDS) for _ in range(24)]
    return Drawn(Turn(calls=(_file(rng, f"a{''.join(parts)}z"),)))


def _unicode_answer(rng: random.Random, format: Format) -> Drawn:
    parts = [rng.choice(UNICODE) if rng.random() < 0.5 else rng.choice(WORDS) for _ in range(16)]
    return Drawn(Turn(f"A {' '.join(parts)} z."))


def _markup_in_argument(rng: random.Random, format: Format) -> Drawn:
    marker = rng.choice([*markers_of(format), *ELSEWHERE])
    text = rng.choice(["see {} there", "a\n{}\nb", "{}"]).format(marker) + f" {rng.randint(1000, 9999)}"
    return Drawn(
        Turn(calls=(_file(rng, text), _weather(rng))), plain=(text, json.dumps(text, ensure_ascii=False)[1:-1])
    )


def _markup_in_answer(rng: random.Random, format: Format) -> Drawn:
    quoted = f"`{rng.choice(markers_of(format) or list(ELSEWHERE))}`"
    return Drawn(Turn(f"{_sentence(rng)} It writes {quoted} before it. {_sentence(rng)}"), plain=(quoted,))


def _code(rng: random.Random, format: Format) -> Drawn:
    body = '{"a": [1, 2], "b": {"c": "<d>"}}'
    return Drawn(Turn(f"{_sentence(rng)}\n\n```json\n{body}\n```\n\nIf a < b and c[0] > d, then `x = {{}}`."))


def _huge(rng: random.Random, format: Format) -> Drawn:
    lines = [f"    {rng.choice(WORDS)}_{n} = [{n}, '{rng.choice(WORDS)}']  # \"{n}\"" for n in range(105)]
    return Drawn(Turn(calls=(_file(rng, "\n".join(lines)),)))


def _text_after(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn("", (_file(rng, _sentence(rng)),)), after=f"\n\n{_sentence(rng)}")


def _unknown_tool(rng: random.Random, format: Format) -> Drawn:
    return Drawn(Turn(calls=(_call("launch_rocket", {"target": _sentence(rng)}),)), offered=False)


def _cut_off(rng: random.Random, format: Format) -> Drawn:
    """What the streams that end early are cut from: every value in it stands there once."""
    thinks = format.reasoning is not None and rng.random() < 0.5
    calls = tuple(_file(rng, _sentence(rng)) for _ in range(rng.randint(0, 2)))
    answer = _sentence(rng) if not calls or rng.random() < 0.5 else ""
    return Drawn(Turn(answer, calls, _sentence(rng) if thinks else ""))


KINDS: dict[str, Draw] = {
    "answer": _answer,
    "call": _one_call,
    "calls": _calls,
    "text-and-call": _text_and_call,
    "reasoning-and-answer": _reasoned,
    "reasoning-and-calls": _reasoned_calls,
    "nested-arguments": _nested,
    "no-arguments": _no_arguments,
    "empty-string": _empty_string,
    "unicode-in-argument": _unicode,
    "unicode-in-answer": _unicode_answer,
    "markup-in-argument": _markup_in_argument,
    "markup-in-answer": _markup_in_answer,
    "code-in-answer": _code,
    "huge-argument": _huge,
    "text-after-call": _text_after,
    "unknown-tool": _unknown_tool,
    "cut-off": _cut_off,
}


# The text that says it


@cache
def templates_of(name: str) -> tuple[Template, ...]:
    """The vendors' templates that write this format, as far as they are here."""
    return tuple(
        one
        for one in TEMPLATES.values()
        if name in one.formats and one.formats[-1] == name and (SHARED / "templates" / f"{one.file}.jinja").exists()
    )


def messages(name: str, kind: str, count: int, seed: int = SEED) -> Iterator[Meant]:
    """`count` messages of a kind, or fewer: a format that cannot say one leaves it out."""
    format = unbraid.find(name)
    for number in range(count):
        rng = random.Random(f"{seed}:{name}:{kind}:{number}")
        for _ in range(8):
            meant = _said(format, kind, number, KINDS[kind](rng, format))
            if meant is not None:
                yield meant
                break


def a_file(name: str, kind: str, size: int) -> Meant | None:
    """One call with an argument of so many characters."""
    text = "".join(f"line {n}: the weather in Paris is mild\n" for n in range(1 + size // 36))[:size].rstrip()
    return _said(unbraid.find(name), kind, 0, Drawn(Turn(calls=(_file(random.Random(size), text),))))


def _said(format: Format, kind: str, number: int, drawn: Drawn) -> Meant | None:
    sources = templates_of(format.name)
    meant = _written(format, kind, number, drawn, sources)
    if meant is None and format.reasoning is not None and not drawn.turn.reasoning:
        # Some models always reason: their prompt has begun it.
        thoughtful = replace(drawn, turn=replace(drawn.turn, reasoning="I look at what is asked, and answer that."))
        meant = _written(format, kind, number, thoughtful, sources)
    if meant is None or not (meant.turn.content or meant.turn.calls or meant.turn.reasoning):
        return None
    if drawn.after:
        close = format.tools.close.strip() if format.tools else ""
        if not (close and meant.turn.calls and meant.text.rstrip().endswith(close)):
            return None
        meant = replace(meant, text=meant.text + drawn.after, after=drawn.after)
    return meant if _is_in(meant) else None


def _written(format: Format, kind: str, number: int, drawn: Drawn, sources: tuple[Template, ...]) -> Meant | None:
    if not sources:
        return _by_grammar(format, kind, number, drawn)
    return _by_template(format, kind, number, drawn, sources[number % len(sources)])


def _by_template(format: Format, kind: str, number: int, drawn: Drawn, template: Template) -> Meant | None:
    turn = drawn.turn
    if template.tools is not None and template.tools[0]["function"]["parameters"]["properties"].keys() >= {"b"}:
        template = replace(template, tools=TOOLS)
    as_objects: ArgumentsAs = "object" if "object" in template.arguments else "text"
    if turn.calls and not template.arguments:
        return _by_grammar(format, kind, number, drawn)
    if template.refuses(turn) and kind != "calls":
        turn = replace(turn, calls=turn.calls[:1])
    if (turn.reasoning and not template.reasoning) or template.refuses(turn) or template.opens(turn):
        return None
    if any(tag in arguments for tag in template.tags for _, arguments in turn.calls):
        return None
    left = template.left_of(turn, as_objects)
    if bool(left.calls) != bool(turn.calls) or (kind == "calls" and len(left.calls) == 1):
        return None
    if turn.reasoning and left.reasoning.strip() != turn.reasoning.strip():
        return None
    thinks = bool(turn.reasoning)
    template = replace(template, options={"enable_thinking": thinks, "thinking": thinks, **template.options})
    try:
        prompt, text = template_output(template, turn, as_objects)
    except unbraid.UnbraidError:
        return None  # it refuses markup in an answer
    if prompt != render(template, [USER], generate=True):
        return None  # no model writes this after the template's prompt
    if format.name == "harmony":
        text = RECIPIENT.sub(r"<|channel|>commentary to=\1 <|constrain|>json", text)
    ends = [end.strip() for end in template.ends if end.strip()]
    return Meant(
        format.name,
        kind,
        number,
        template.file,
        left,
        prompt,
        text,
        _end(ends, left),
        drawn.plain,
        offered=drawn.offered,
        options=template.options,
    )


def _by_grammar(format: Format, kind: str, number: int, drawn: Drawn) -> Meant | None:
    turn = drawn.turn
    if turn.calls and (format.tools is None or (turn.reasoning and format.name in EITHER)):
        return None
    if bool(turn.reasoning) != (format.reasoning is not None) and (turn.reasoning or format.name not in EITHER):
        return None
    try:
        text = unbraid.render(format, turn.message())
    except unbraid.UnbraidError:
        return None
    return Meant(
        format.name,
        kind,
        number,
        "ours",
        turn,
        "",
        text,
        _end(list(format.ends), turn),
        drawn.plain,
        offered=drawn.offered,
    )


def _end(ends: list[str], turn: Turn) -> str:
    """The token that ends the turn; a harmony turn with a call has one of its own."""
    return "<|call|>" if turn.calls and "<|call|>" in ends else next(iter(ends), "")


def _is_in(meant: Meant) -> bool:
    """Whether the text has all that is meant, word for word: a template that loses more says so nowhere."""
    strings = [text for _, arguments in meant.turn.calls for text in _strings(json.loads(arguments))]
    whole = [meant.turn.content.strip(), meant.turn.reasoning.strip()]
    return all(one in meant.text for one in whole) and all(_spelled_in(one, meant.text) for one in strings)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _spelled_in(value: str, text: str) -> bool:
    spellings = (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    return any(one in text or one.replace("'", "\\'") in text for one in spellings)
