"""What a template looks for in the texts of messages: words that switch it, such as `/no_think` or `</think>`.

A short text can stand for a long one if the template cannot tell them apart. It tells texts apart by the constants that
it compares them with, splits them at, or searches them for. All of these are in its source. So a text that contains
none of them can be replaced by any other such text, and one that contains some must stay what it is.

    {% if '/no_think' in m.content %}        a switch: /no_think
    {% if m.role == 'user' %}{{ 'User' }}    none: a role is no text of a message, and what is only written asks nothing

What is left out is what is certainly no text of a message: names of fields, and constants that are compared with a
field that is no text (`m.role == 'user'`). In doubt a constant is a switch: that costs time, and nothing else.

A template may ask what no constant tells, such as how long a text is. That is tried, and not read off the source
(`rollouts.extension`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import PromptError
from .traced_text import REASONING_FIELDS

if TYPE_CHECKING:
    from .template import ChatTemplate

_TEXT_FIELDS = frozenset({"content", "text", *REASONING_FIELDS})
_COMPARED = ("eq", "ne", "in", "notin")
_NO_QUESTION = ("raise_exception", "strftime_now")


@dataclass(frozen=True)
class Switches:
    """What templates look for in texts."""

    words: tuple[str, ...] = ()
    folds: bool = False
    """Whether texts are compared in lower case."""
    compares: bool = False
    """Whether texts of messages are compared with each other."""

    def in_text(self, text: str) -> bool:
        """Whether a text contains one of the words."""
        if self.folds:
            text = text.lower()
        for word in self.words:  # noqa: SIM110 (twice as fast as `any`)
            if word in text:
                return True
        return False

    def joined(self, other: Switches) -> Switches:
        words = tuple(dict.fromkeys([*self.words, *other.words]))
        return Switches(words, self.folds or other.folds, self.compares or other.compares)


def switches_of(template: ChatTemplate) -> Switches:
    """The switches of a template. One that cannot be parsed has none: it renders nothing either."""
    try:
        import jinja2

        from .sandbox.environment import environment
    except ImportError as error:
        raise PromptError("chat templates need jinja2, which is not installed") from error
    try:
        tree = environment().parse(template.source)
    except jinja2.TemplateSyntaxError:
        return Switches()
    folds = any(_name(node) in ("lower", "upper", "title", "capitalize") for node in _all(tree))
    fields = {key for node in _all(tree) if (key := _key(node)) is not None}
    words = {word for node in _all(tree) for word in _words(node) if word.strip() and word not in fields}
    compares = any(_compares_texts(node) for node in _all(tree))
    return Switches(tuple(sorted(word.lower() for word in words) if folds else sorted(words)), folds, compares)


def _all(tree: Any) -> Iterator[Any]:
    yield tree
    for child in tree.iter_child_nodes():
        yield from _all(child)


def _name(node: Any) -> str | None:
    """The name of a filter, or of a method that is called."""
    kind = type(node).__name__
    if kind == "Filter":
        return str(node.name)
    return str(node.node.attr) if kind == "Call" and type(node.node).__name__ == "Getattr" else None


def _function(node: Any) -> str | None:
    """The name of a function that is called."""
    is_call = type(node).__name__ == "Call" and type(node.node).__name__ == "Name"
    return str(node.node.name) if is_call else None


def _key(node: Any) -> str | None:
    """The name of the field that an expression reads."""
    kind = type(node).__name__
    if kind == "Getattr":
        return str(node.attr)
    if kind == "Getitem" and type(node.arg).__name__ == "Const" and isinstance(node.arg.value, str):
        return str(node.arg.value)
    if kind == "Call" and _name(node) == "get" and node.args and type(node.args[0]).__name__ == "Const":
        return str(node.args[0].value)
    return None


def _words(node: Any) -> Iterator[str]:
    """The constants that a node asks for, gives to a function, or keeps for later."""
    kind = type(node).__name__
    if kind == "Compare":
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        if all(map(_may_be_said, sides)):
            yield from (word for side in sides for word in _constants(side))
    elif kind in ("Call", "Filter", "Test") and _function(node) not in _NO_QUESTION:
        yield from (word for each in node.args or () for word in _constants(each))
        yield from (word for each in node.kwargs or () for word in _constants(each.value))
    elif kind == "Assign":
        yield from _constants(node.node)
    elif kind == "Pair":
        yield from _constants(node.key)


def _may_be_said(node: Any) -> bool:
    """Whether an expression may be a text of a message, or an argument of a call."""
    key = _key(node)
    return key is None or key in _TEXT_FIELDS or any(_key(each) == "arguments" for each in _all(node))


def _constants(node: Any) -> Iterator[str]:
    kind = type(node).__name__
    if kind == "Const" and isinstance(node.value, str):
        yield node.value
    elif kind in ("List", "Tuple"):
        yield from (word for each in node.items for word in _constants(each))
    elif kind in ("Add", "Concat"):
        parts = [node.left, node.right] if kind == "Add" else node.nodes
        texts = [list(_constants(part)) for part in parts]
        if all(len(each) == 1 for each in texts):
            yield "".join(each[0] for each in texts)


def _compares_texts(node: Any) -> bool:
    """Whether a node compares two values that may both be texts of messages, or messages."""
    if type(node).__name__ != "Compare" or any(operand.op not in _COMPARED for operand in node.ops):
        return False
    sides = [node.expr, *(operand.expr for operand in node.ops)]
    return all(_may_be_text(side) for side in sides)


def _may_be_text(node: Any) -> bool:
    kind, key = type(node).__name__, _key(node)
    if key is not None:
        return key in _TEXT_FIELDS
    return kind in ("Name", "Getitem", "Filter", "Call", "Add", "Concat") and _name(node) not in ("length", "count")
