"""Writes docs/conformance.md: what three engines and unbraid say to the recorded cases.

python -m tests.formats.conformance.write           write it
python -m tests.formats.conformance.write --check   only say whether it is up to date
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from unbraid import Message, Text

from ...support.generated import main
from ...support.places import ROOT
from .answers import DIFFERENT, EMITTED, NUMBERS, Number, Part, Parts
from .cases import ENGINES, FAMILIES, Case, Said, cases, read

DOCUMENT = ROOT / "docs" / "conformance.md"

_HEAD = """\
# Conformance

NVIDIA's Dynamo project recorded what three engines make of the same tool-call texts: its own parser, vLLM's and
SGLang's. The three often contradict each other, so the records are evidence and not truth. unbraid follows two rules:

- Where all three agree, unbraid agrees with them, except in the cases
  [below](#where-all-three-agree-and-unbraid-differs), where a law forbids their answer.
- The answer to every case is written down with the law that it follows (`tests/formats/conformance/answers.py`; the
  laws are in [laws.md](laws.md)). A test checks the parser against it, with whole texts and one character at a
  time.

Two things to know when you compare. Most engines drop text that follows the first call; unbraid keeps it (law 3), and
the comparison uses the text before the call, or all of it. The engines answer without streaming, so a call that never
became complete is text in their answers; in unbraid's it is text after `settled()`, and is marked *not complete* below.
`[…]` stands for text that is left out here.

Where unbraid changed its mind: a call between tags that the output cuts off was complete until law 12, as in the three
engines. Now it is not.

Written by `python -m tests.formats.conformance.write`; do not edit.
"""
_DIFFERENT_HEAD = """\
## Where all three agree and unbraid differs

In all of these, the engines lose something that the model wrote, or take back a call that has begun. In {alike} of the
{count}, the calls are the same, and unbraid only keeps text that the engines drop.

| case | the text | the engines | unbraid | why |
| --- | --- | --- | --- | --- |"""
_NUMBERS_HEAD = """\
## The cases

The numbers mean the same in every family. *Agree* and *differ* list the engines that have a parser for the family, by
whether their answer is unbraid's. An empty cell under *unbraid* stands for the answer above the table.
"""


class _Ours:
    """Every case, and our messages to them."""

    def __init__(self) -> None:
        self.cases = {(family, name): case for family in FAMILIES for name, case in cases(family).items()}
        self.messages = {key: read(key[0], case) for key, case in self.cases.items()}
        self.emitted = {key: read(key[0], self.cases[key], "emit") for key in EMITTED if key in self.cases}

    def with_us(self, key: tuple[str, str]) -> tuple[str, ...]:
        return self.cases[key].with_us(self.emitted.get(key, self.messages[key]))

    def same_calls(self, key: tuple[str, str]) -> bool:
        agreed = self.cases[key].agreed
        return agreed is not None and agreed.has_calls_of(self.messages[key])

    def count(self, family: str, condition: Callable[[Case, int], bool]) -> int:
        return sum(condition(case, len(self.with_us(key))) for key, case in self.cases.items() if key[0] == family)


def document() -> str:
    ours = _Ours()
    different = [key for key in ours.cases if key in DIFFERENT]
    alike = sum(ours.same_calls(key) for key in different)
    lines = [_HEAD, *_summary(ours), "", _DIFFERENT_HEAD.format(alike=alike, count=len(different))]
    lines += [_difference(ours, *key) for key in different]
    lines += ["", _NUMBERS_HEAD]
    for name, number in NUMBERS.items():
        lines += [*_number(ours, name, number), ""]
    return "\n".join(lines)


def _summary(ours: _Ours) -> Iterable[str]:
    """How many cases each family has, and how many engines say the same as we do."""
    counts: dict[str, Callable[[Case, int], bool]] = {
        "cases": lambda case, same: True,
        "all three agree": lambda case, same: case.agreed is not None,
        "unbraid too": lambda case, same: case.agreed is not None and same == 3,
        "other cases": lambda case, same: case.agreed is None,
        "all with unbraid": lambda case, same: case.agreed is None and same == len(case.engines),
        "some with unbraid": lambda case, same: case.agreed is None and 0 < same < len(case.engines),
        "none with unbraid": lambda case, same: case.agreed is None and same == 0,
    }
    yield _row("family", "format", "its engines", *counts)
    yield "| --- | --- | --- |" + " ---: |" * len(counts)
    total = dict.fromkeys(counts, 0)
    for family, format in FAMILIES.items():
        engines = {engine for key, case in ours.cases.items() if key[0] == family for engine in case.engines}
        numbers = {name: ours.count(family, condition) for name, condition in counts.items()}
        total = {name: total[name] + number for name, number in numbers.items()}
        names = ", ".join(engine for engine in ENGINES if engine in engines)
        yield _row(family, f"`{format}`", names, *map(str, numbers.values()))
    yield _row("all", "", "", *map(str, total.values()))


def _difference(ours: _Ours, family: str, name: str) -> str:
    case, message = ours.cases[family, name], ours.messages[family, name]
    assert case.agreed is not None
    return _row(
        f"{family} {name}", _code(repr(case.text), 100), _said(case.agreed), _message(message), DIFFERENT[family, name]
    )


def _number(ours: _Ours, name: str, number: Number) -> Iterable[str]:
    """One number: the answer that most families have, then who says what. Families that read alike share a line."""
    keys = [(family, name) for family in FAMILIES if (family, name) in ours.cases]
    usual = _usual(number, [ours.cases[key] for key in keys if key[0] not in number.but])
    yield f"### {name} {number.title}"
    yield ""
    yield f"unbraid: {usual or 'each family has its own answer'}; {number.answer.law}."
    yield ""
    yield _row("family", "agree", "differ", "unbraid")
    yield "| --- | --- | --- | --- |"
    lines: dict[tuple[str, ...], list[str]] = {}
    for key in keys:
        same = ours.with_us(key)
        others = [engine for engine in ours.cases[key].engines if engine not in same]
        cell = ""
        if own := number.but.get(key[0]):
            parts = own.parts(ours.cases[key])
            cell = "; ".join(
                filter(
                    None,
                    ["" if parts == number.answer.parts(ours.cases[key]) else _parts(parts, ours.cases[key]), own.law],
                )
            )
        elif key in EMITTED:
            cell = 'with `unknown_tools="emit"` the call'
        lines.setdefault((", ".join(same) or "none", ", ".join(others), cell), []).append(key[0])
    for cells, names in lines.items():
        yield _row(", ".join(names), *cells)


def _usual(number: Number, found: list[Case]) -> str:
    """The answer of the families that have none of their own."""
    texts = {_parts(number.answer.parts(case), case) for case in found}
    return texts.pop() if len(texts) == 1 else f"for example {min(texts)}" if texts else ""


def _message(message: Message) -> str:
    parts = (part.text if isinstance(part, Text) and part.strand == "content" else part for part in message.parts)
    return _parts(tuple(part for part in parts if isinstance(part, Part)))


def _parts(parts: Parts, case: Case | None = None) -> str:
    if case is not None and case.text.strip() and parts == (case.text,):
        return "all of it is content"
    return ", ".join(map(_part, parts)) or "nothing"


def _said(said: Said) -> str:
    """What an engine says."""
    calls = [_code(f"{name}({arguments})") for name, arguments in said.calls]
    return ", ".join([*([_code(repr(said.text))] if said.text else []), *calls]) or "nothing"


def _part(part: Part) -> str:
    if isinstance(part, str):
        return _code(repr(part))
    if isinstance(part, Text):
        return f"reasoning {_code(repr(part.text))}"
    return _code(f"{part.name}({part.arguments})") + ("" if part.complete else " *not complete*")


def _code(text: str, most: int = 72) -> str:
    text = text.replace("\n", r"\n")
    text = text if len(text) <= most else text[: most - 20] + "[…]" + text[-16:]
    return f"```` {text} ````" if "`" in text else f"`{text}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(__doc__, DOCUMENT, document, sys.argv[1:]))
