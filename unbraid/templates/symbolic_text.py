"""Text that stands for any text: what a template writes, as an expression over what messages say.

For messages that differ only in their texts, a template need not be rendered again. It is run once with `Symbol`s in
the place of these texts, as tracing compilers and symbolic execution do it. A symbol is a real text, so the template
runs as ever. A symbol also knows the expression that it is the value of. Each question that the template asks of it
(`startswith`, `==`, whether it is empty) is kept with the answer, as a guard. The expression of the output holds for
all texts that give the same answers:

    the template                 <user>{{ message.content | trim }}</user>{% if 'x' in message.content %}!{% endif %}
    rendered with the symbol     "hello"
    Recipe.parts                 "<user>", strip(text 0), "</user>"
    Recipe.guards                ('x' in text 0) is False
    Recipe.text([" bye "])       "<user>bye</user>"
    Recipe.text(["x"])           None: a guard does not hold

The rule is to deny. What symbols can follow is listed here and in the sandbox's hooks. Whatever else a template does
with a symbol is noted (`Record.look`), and there is no recipe. `tests/templates/test_recipes.py` holds recipes
against renderings, for every template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

from .control_tokens import MARK
from .traced_text import Origin, TracedText, plain


class Expression:
    """A text, or the answer to a question about it, as a function of the input texts."""

    __slots__ = ()

    def value(self, inputs: Sequence[str]) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class InputText(Expression):
    """One of the input texts."""

    number: int

    def value(self, inputs: Sequence[str]) -> str:
        return inputs[self.number]


@dataclass(frozen=True, slots=True)
class Applied(Expression):
    """A function without side effects, of expressions and constants."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def value(self, inputs: Sequence[str]) -> Any:
        return self.function(*[each.value(inputs) if isinstance(each, Expression) else each for each in self.args])


@dataclass(frozen=True, slots=True)
class Joined(Expression):
    """Texts and expressions, one after the other."""

    parts: tuple[str | Expression, ...]

    def value(self, inputs: Sequence[str]) -> str:
        return "".join(part if isinstance(part, str) else part.value(inputs) for part in self.parts)


@dataclass(frozen=True)
class Recipe:
    """What a template writes for all input texts that give the same answers."""

    guards: tuple[tuple[Expression, Any], ...]
    """Questions that the template asked, and their answers."""
    parts: tuple[str | Expression, ...]
    """The output, with marks."""

    def text(self, inputs: Sequence[str]) -> str | None:
        """What the template writes for these input texts; None if a guard does not hold."""
        for question, answer in self.guards:
            if question.value(inputs) != answer:
                return None
        texts = [part if isinstance(part, str) else part.value(inputs) for part in self.parts]
        return "".join(texts) if all(texts) else None


@dataclass
class Record:
    """What a template did with the symbols of one rendering."""

    given: list[str] = field(default_factory=list)
    guards: list[tuple[Expression, Any]] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    """What the template did that a recipe cannot express."""
    output: Expression | None = None

    def symbol(self, text: str, origin: Origin) -> Symbol:
        """A symbol for the next input text."""
        self.given.append(text)
        return Symbol.create(TracedText.of(text, origin), InputText(len(self.given) - 1), self)

    def look(self, how: str) -> None:
        """Note that the template used a symbol in a way that says nothing about other texts."""
        self.looks.append(how)

    def answered(self, question: Expression, answer: Any) -> None:
        if (question, answer) not in self.guards:
            self.guards.append((question, answer))

    def traced_value(self, value: Any, expression: Expression) -> Any:
        """The result of a function, as a symbol or with guards."""
        if isinstance(value, str):
            return Symbol.create(value, expression, self)
        if isinstance(value, list | tuple):
            self.answered(Applied(len, (expression,)), len(value))
            items = (self.traced_value(each, Applied(_item, (expression, at))) for at, each in enumerate(value))
            return type(value)(items)
        self.answered(expression, value)
        return value

    def recipe(self, end: str) -> Recipe | None:
        """The recipe for the suffix of the output that equals this text, or None."""
        if self.looks or not isinstance(self.output, Joined):
            return None
        parts: list[str | Expression] = []
        size = len(end)
        for part in reversed(self.output.parts):
            if not size:
                break
            text = part if isinstance(part, str) else str(part.value(self.given))
            if len(text) > size and not isinstance(part, str):
                return None  # the suffix begins inside an input text
            parts.insert(0, part if not isinstance(part, str) else text[-size:])
            size -= min(len(text), size)
        recipe = Recipe(tuple(self.guards), tuple(parts))
        return recipe if recipe.text(self.given) == end else None


class Symbol(TracedText):
    """A text that knows the expression it is the value of."""

    __slots__ = ("expression", "record")
    expression: Expression
    record: Record

    @classmethod
    def create(cls, text: str, expression: Expression, record: Record) -> Symbol:
        symbol = cls(str.__str__(text))
        symbol._spans, symbol._points = (text._spans, text._points) if isinstance(text, TracedText) else ((), ())
        symbol.expression, symbol.record = expression, record
        return symbol

    def plain(self) -> TracedText:
        """The same text without its expression: what is done with it is not noted."""
        return TracedText._create(str.__str__(self), self._spans, self._points)

    def joined_as(self, text_joined: TracedText, texts: Iterable[str]) -> TracedText:
        """What these texts were joined to, as a symbol; `self` is one of them."""
        parts: list[str | Expression] = []
        for text in texts:
            expression = text.expression if isinstance(text, Symbol) else str.__str__(text)
            for part in expression.parts if isinstance(expression, Joined) else (expression,):
                if isinstance(part, str) and parts and isinstance(parts[-1], str):
                    parts[-1] += part
                elif part != "":
                    parts.append(part)
        return Symbol.create(text_joined, Joined(tuple(parts)), self.record)

    def written_by(self, write: Callable[[Any], str], value: Any) -> str:
        """The result of a pure function of a JSON value, as a symbol; `self` is one of the symbols in the value."""
        symbols: list[Symbol] = []

        def noted(symbol: Symbol) -> str:
            symbols.append(symbol)
            return symbol.plain()

        text = write(_with_texts(value, noted))

        def anew(*texts: str) -> str:
            rest = iter(texts)
            return write(_with_texts(value, lambda _: next(rest)))

        return str(self.record.traced_value(text, Applied(anew, tuple(each.expression for each in symbols))))

    # Questions

    @property
    def length(self) -> int:
        """The length. Python does not let a subclass follow `len`."""
        return int(self.record.traced_value(len(self), Applied(len, (self.expression,))))

    def __bool__(self) -> bool:
        return bool(self.record.traced_value(len(self) > 0, Applied(bool, (self.expression,))))

    def __eq__(self, other: object) -> bool:
        return bool(called("__eq__", self, other)) if isinstance(other, str) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, item: object) -> bool:
        return bool(called("__contains__", self, item))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        return str(called("__getitem__", self, key))

    def __iter__(self) -> Iterator[str]:
        self.record.look("iteration")
        return iter(self.plain())

    def __hash__(self) -> int:
        self.record.look("hash")
        return str.__hash__(self)

    def __repr__(self) -> str:
        self.record.look("repr")
        return str.__repr__(self)

    def __format__(self, spec: str) -> str:
        self.record.look("format")
        return str.__format__(self, spec)

    def __mod__(self, values: Any) -> str:
        self.record.look("%")
        return str.__mod__(self, values)

    def __rmod__(self, pattern: str) -> str:
        self.record.look("%")
        return str.__mod__(pattern, self.plain())

    def __mul__(self, times: SupportsIndex) -> str:
        self.record.look("*")
        return str.__mul__(self, times)

    __rmul__ = __mul__


def _compares(name: str) -> Callable[[Symbol, str], bool]:
    def compare(self: Symbol, other: str) -> bool:
        self.record.look(name)
        return bool(getattr(str, name)(str.__str__(self), other))

    return compare


for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    setattr(Symbol, _name, _compares(_name))

FOLLOWED = frozenset(
    name
    for name in dir(str)
    if not name.startswith("_") and name not in ("encode", "format", "format_map", "join", "maketrans", "translate")
)
"""Pure methods of a text: their results are texts, numbers and truth values."""


def _followed(name: str) -> Callable[..., Any]:
    def method(self: Symbol, *args: Any, **more: Any) -> Any:
        if more:
            self.record.look(name)
            return getattr(self.plain(), name)(*args, **more)
        return called(name, self, *args)

    method.__name__ = name
    return method


for _name in FOLLOWED:
    setattr(Symbol, _name, _followed(_name))


def called(name: str, text: str, *args: Any) -> Any:
    """Call a method of a text, where the text or an argument is a symbol. The result is a symbol or has guards."""
    record = next(each.record for each in (text, *args) if isinstance(each, Symbol))
    if any(symbol_in(each) is not None for each in args if not isinstance(each, Symbol)):
        record.look(name)
    traced = text.plain() if isinstance(text, Symbol) else plain(text)
    result = getattr(traced, name)(*(each.plain() if isinstance(each, Symbol) else each for each in args))
    return record.traced_value(result, Applied(getattr(str, name), tuple(map(_as_argument, (text, *args)))))


def _as_argument(value: Any) -> Any:
    return value.expression if isinstance(value, Symbol) else value


def _with_texts(value: Any, text: Callable[[Symbol], str]) -> Any:
    """A JSON value with texts in the place of its symbols, in a fixed order."""
    if isinstance(value, Symbol):
        return text(value)
    if isinstance(value, dict):
        return {_with_texts(key, text): _with_texts(item, text) for key, item in dict.items(value)}
    if isinstance(value, list | tuple):
        return [_with_texts(item, text) for item in value]
    return value


def _item(of: Sequence[str], at: int) -> str:
    return of[at]


def symbol_in(value: Any) -> Symbol | None:
    """A symbol in a JSON value."""
    if isinstance(value, Symbol):
        return value
    if isinstance(value, dict):
        value = [each for pair in dict.items(value) for each in pair]
    if isinstance(value, list | tuple):
        return next((symbol for each in value if (symbol := symbol_in(each)) is not None), None)
    return None


def places(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any], str]]:
    """The places of a recipe's input texts: the call ids of the first message, and of the others the content and the
    call that they answer. Each as message, field of the message, object that holds the text, key in that object."""
    for number, message in enumerate(messages):
        content = message.get("content")
        if number and isinstance(content, str):
            yield message, "content", message, "content"
        for part in content if number and isinstance(content, list) else ():
            yield message, "content", part, "text"
        if isinstance(message.get("tool_call_id"), str):
            yield message, "tool_call_id", message, "tool_call_id"
        for call in message.get("tool_calls") or ():
            yield message, "tool_calls", call, "id"


def are_unmarked(texts: Iterable[str]) -> bool:
    """Whether a recipe may be used for these texts. A template that compares text looks at marks."""
    return not any(MARK in text for text in texts if not text.isascii())
