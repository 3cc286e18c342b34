"""The engines' messages (pydantic models) without validation, which is most of what a delta would cost.

The values are ours and of the right types, so there is nothing to validate. `unvalidated` takes a function that makes a
message the usual way. It calls that function once, looks at the state that pydantic gave the message (values, fields
that count as set), and writes a function that makes the same state at once, as `dataclasses` writes `__init__`. Where
pydantic keeps its state in another way than here, or there is more in it, the usual way stays.

    make = unvalidated(lambda text: DeltaMessage(content=text), "a text")
    make("Hello")   # the same as DeltaMessage(content="Hello")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_STATE = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")

_Make = TypeVar("_Make", bound=Callable[..., Any])


class _Unknown(Exception):
    """There is something in a message that is not known here."""


def unvalidated(make: _Make, *example: Any) -> _Make:
    """A function like `make`, whose parameters are values that go into its message as they are. The example is values
    for them that nothing else in the message has."""
    code = make.__code__
    writer = _Writer(dict(zip(code.co_varnames[: code.co_argcount], example, strict=True)))
    try:
        fast = writer.function(make(*example))
    except _Unknown:
        return make
    return fast if _state(fast(*example)) == _state(make(*example)) else make


class _Writer:
    """Writes the function."""

    def __init__(self, example: dict[str, Any]) -> None:
        self._example = example
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"new": object.__new__}

    def function(self, message: Any) -> Any:
        result = self._value(message)
        lines = [f"def make({', '.join(self._example)}):", *self._lines, f" return {result}"]
        exec("\n".join(lines), self._names)
        return self._names["make"]

    def _value(self, value: Any) -> str:
        """What stands for a value; a message is made first, by lines of its own."""
        for name, example in self._example.items():
            if type(value) is type(example) and value == example:
                return name
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if value is None or isinstance(value, str | int):
            return repr(value)
        return self._message(value)

    def _message(self, message: Any) -> str:
        kind = type(message)
        values, fields_set, extra, private = (getattr(message, name, _Unknown) for name in _STATE)
        if not isinstance(values, dict) or not isinstance(fields_set, set) or extra or private is not None:
            raise _Unknown
        fields = {name: self._value(value) for name, value in values.items()}
        one = f"message{len(self._lines)}"
        self._lines += [f" {one} = new({self._name(kind)})", f" values = {one}.__dict__"]
        self._lines += [f" values[{name!r}] = {value}" for name, value in fields.items()]
        for name, state in zip(
            _STATE[1:], (repr(fields_set) if fields_set else "set()", repr(extra), "None"), strict=True
        ):
            self._lines.append(f" {self._name(_slot(kind, name))}({one}, {state})")
        return one

    def _name(self, value: Any) -> str:
        """The name that a constant has in the function."""
        name = next((name for name, other in self._names.items() if other == value), f"constant{len(self._names)}")
        self._names[name] = value
        return name


def _slot(kind: type[Any], name: str) -> Any:
    """What puts a part of the state in its place, past `__setattr__`."""
    place: Any = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if not hasattr(place, "__set__"):
        raise _Unknown
    return place.__set__


def _state(value: Any) -> Any:
    """All that there is to a message."""
    if isinstance(value, dict):
        return {name: _state(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_state, value))
    parts = [getattr(value, name, None) for name in _STATE[1:]]
    return value if parts == [None] * 3 else (type(value), _state(vars(value)), parts)
