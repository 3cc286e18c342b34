"""The beginning of a turn: the raw text of a message that broke off inside a call.

A client has the name of the call and a part of its arguments as JSON. What the model had written for them depends on
the notation. So the JSON is completed in several ways, each is rendered, and what all have in common is what was
written: no notation needs to know how to be cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial

from ...core.grammar import Format
from ...core.message import Message, Part, ToolCall
from ...core.render import render
from ...errors import UnbraidError

_half_escape = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z").search
_half_tag = re.compile(r"<[^<>\s]*\Z").sub
"""Takes the beginning away that the tags have in common which may come next."""
_without_strings = partial(re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).sub, "")
_ENDS = (
    *("", '"', 'qx"', 'qy"', 'qx": 1', 'qy": 1', '"qx": 1', ' "qx": 1', '"qy": 1', '"x"', '"y"', " 1", ": 1", ':"x"'),
    *(": []", "1", "7", "[]", "true", *(word[at:] for word in ("true", "false", "null") for at in range(1, len(word)))),
)
"""What may come after JSON that broke off, up to the end of a value: one of these, at least."""
_HEADER = 200
"""No header is longer."""
_MORE = ("", ', "qx": 1', ", 1")
"""What may come after that value."""


def render_begun(format: Format, texts_before: Sequence[Part], calls: Sequence[ToolCall]) -> str:
    """What a model wrote that broke off inside the last call. Raises `UnbraidError` where the arguments of that are no
    beginning of JSON, or the format cannot write them."""
    *others, call = calls
    texts = [
        render(format, Message((*texts_before, *others, ToolCall(call.name, whole, call.id))))
        for whole in completed(call.arguments)
    ]
    if not texts:
        raise UnbraidError(f"what there is of the arguments is no beginning of JSON: {call.arguments[:40]!r}")
    begun = _common(texts)
    return begun if _in_string(call.arguments) else _half_tag("", begun)


def render_before_call(format: Format, texts_before: Sequence[Part], begun: str) -> str:
    """What a model wrote that broke off where the name of its first call comes. `begun` is what there is of that."""
    call = ToolCall("a", "{}")
    whole, alone = (render(format, Message((*texts, call))) for texts in (texts_before, ()))
    before = whole.removesuffix(alone) if whole.endswith(alone) else ""
    return before + begun[shared(before, begun) :]


def shared(before: str, text: str) -> int:
    """How much of a text another one ends with already, such as the header of a message."""
    return next((size for size in range(min(len(text), _HEADER), 0, -1) if before.endswith(text[:size])), 0)


def list_so_far(format: Format, calls: Sequence[ToolCall]) -> tuple[str, str]:
    """What a model wrote for calls that another one follows; and what comes between, up to that one's name."""
    try:
        whole, *longer = (
            render(format, Message((*calls, *(ToolCall(name, "{}") for name in more)))) for more in ("", "a", "b")
        )
    except UnbraidError:
        return "", ""
    both = _common(longer)
    so_far = _common([whole, both])
    return so_far, both[len(so_far) :]


def completed(text: str) -> Iterator[str]:
    """JSON that broke off, completed in ways that differ right after it. Half of an escape is left out, and so is the
    last bracket of an object that is whole: it is for the model to close the call."""
    half = _half_escape(text)
    text = (text[: half.start(1)] if half else text) or "{"
    close = _closing(text)
    if not close and text.rstrip().endswith("}"):
        text, close = text.rstrip()[:-1], "}"
    for end in _ENDS:
        for more in _MORE:
            whole = text + end + more + close
            try:
                json.loads(whole)
            except (ValueError, RecursionError):
                continue
            yield whole


def _common(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    size = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:size]


def _closing(text: str) -> str:
    """The brackets that close what a text has opened."""
    open: list[str] = []
    for bracket in re.findall(r"[\[\]{}]", _without_strings(text).partition('"')[0]):
        if bracket in "[{":
            open.append("]" if bracket == "[" else "}")
        elif open:
            open.pop()
    return "".join(reversed(open))


def _in_string(text: str) -> bool:
    """Whether JSON breaks off inside a string."""
    return '"' in _without_strings(text)
