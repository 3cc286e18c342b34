"""Constraints: the grammar in each syntax, what a syntax cannot enforce, and what may come next while one types."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import Any, get_args

from ...constraints import Constraint, constraint
from ...constraints.printers import GrammarSyntax
from ...errors import OverBudget, UnbraidError
from ...metering import spend
from ...schema.regular import EVERY, Ranges, without
from .question import Question

_MOST_TYPED = 5_000
_MOST_GRAMMAR = 200_000
_MOST_SHOWN = 24
"""How many characters or ranges are named before the rest is counted."""
_NAMES = {" ": "space", "\n": "line break", "\t": "tab", "\r": "carriage return", "\u00a0": "no-break space"}


def grammars(question: Question) -> dict[str, Any]:
    """The grammar of a request in every syntax, or why a syntax cannot express it."""
    allowed = _constraint(question)
    syntaxes = [_syntax(allowed, syntax) for syntax in get_args(GrammarSyntax)]
    return {"format": question.format.name, "syntaxes": syntaxes}


def _syntax(allowed: Constraint, syntax: GrammarSyntax) -> dict[str, Any]:
    try:
        grammar = allowed.printed(syntax).grammar
        lost = allowed.unenforced(syntax)
    except OverBudget:  # of the request as a whole
        raise
    except UnbraidError as error:
        return {"name": syntax, "error": str(error)}
    text = grammar if isinstance(grammar, str) else json.dumps(grammar, indent=2, ensure_ascii=False)
    shown = text if len(text) <= _MOST_GRAMMAR else f"{text[:_MOST_GRAMMAR]}\n… and {len(text) - _MOST_GRAMMAR} more"
    return {"name": syntax, "grammar": shown, "unenforced": [[each.where, each.what] for each in lost]}


def walked(question: Question) -> dict[str, Any]:
    """The characters that may come at each place of a text, up to the first character that may not."""
    text = question.text("text", _MOST_TYPED)
    walk = _constraint(question).walk()
    labels: dict[tuple[str, ...], int] = {}
    places = []
    refused = None
    for at in range(len(text) + 1):
        spend()
        forced = walk.forced()
        places.append(
            {
                "next": labels.setdefault(tuple(_described(walk.allowed)), len(labels)),
                "forced": forced if len(forced) > 1 else "",
                "may_end": walk.may_end,
            }
        )
        if at == len(text):
            break
        if not walk.feed(text[at]):
            refused = at
            break
    return {"places": places, "labels": [list(label) for label in labels], "refused": refused}


def _constraint(question: Question) -> Constraint:
    return constraint(
        question.format,
        tools=question.tools or [],
        tool_choice=question.value("tool_choice"),
        parallel_tool_calls=question.flag("parallel_tool_calls"),
        reasoning=question.flag("reasoning"),
        response_format=question.json("response_format"),
        vocabulary=None,
        prompt=question.prompt,
    )


def _described(ranges: Ranges) -> list[str]:
    """A set of characters in words."""
    if not ranges:
        return ["nothing"]
    missing = without(EVERY, ranges)
    if sum(high - low + 1 for low, high in missing) < sum(high - low + 1 for low, high in ranges):
        return ["any character" if not missing else "any character but", *_shortened(missing)]
    return list(_shortened(ranges))


def _shortened(ranges: Ranges) -> Iterator[str]:
    for low, high in ranges[:_MOST_SHOWN]:
        if high - low < 2:
            yield from map(_shown, range(low, high + 1))
        else:
            yield f"{_shown(low)} to {_shown(high)}"
    if len(ranges) > _MOST_SHOWN:
        yield f"{len(ranges) - _MOST_SHOWN} more ranges"


def _shown(code: int) -> str:
    char = chr(code)
    if char in _NAMES:
        return _NAMES[char]
    return f"U+{code:04X}" if unicodedata.category(char)[0] in "CZM" else char
