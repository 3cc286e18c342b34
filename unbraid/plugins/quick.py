"""Quick: the engines' messages (pydantic models) without validation, which is most of what a delta would cost.

The values are ours and of the right types, so there is nothing to validate. `maker` has pydantic make one real message,
and then makes others like it: the same defaults, the same fields that count as set. The state is put where pydantic
keeps it. Where pydantic keeps it in another way than here, the real constructor is used.

A message is made up to three times for a delta, so a line more in `make` can be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import getattr_static
from typing import Any

_STATE = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def maker(kind: type[Any], **example: Any) -> Callable[..., Any]:
    """A function that makes a `kind` with other values for the same fields. The fields are one or two; their values are
    given in the order of the example."""
    names = tuple(example)

    def real(*values: Any) -> Any:
        return kind(**dict(zip(names, values, strict=True)))

    values = tuple(example.values())
    made = real(*values)
    places = [getattr_static(kind, name, None) for name in _STATE]
    if not all(hasattr(made, name) for name in _STATE) or not all(hasattr(place, "__set__") for place in places):
        return real
    if made.__pydantic_private__ is not None:
        return real
    quick = _quick(kind, names, made, *(place.__set__ for place in places))
    return quick if _state_of(quick(*values)) == _state_of(made) else real


def _quick(
    kind: type[Any],
    names: tuple[str, ...],
    like: Any,
    put_values: Callable[[Any, dict[str, Any]], None],
    put_given: Callable[[Any, set[str]], None],
    put_extra: Callable[[Any, dict[str, Any] | None], None],
    put_private: Callable[[Any, None], None],
) -> Callable[..., Any]:
    first, second = (*names, None)[:2]
    new = partial(object.__new__, kind)
    defaults, given = like.__dict__.copy, like.__pydantic_fields_set__.copy
    allows_extra = like.__pydantic_extra__ is not None
    # A list that is a default is a new one for each.
    lists = next((name for name, value in like.__dict__.items() if name not in names and isinstance(value, list)), None)

    def make(value: Any, other: Any = None) -> Any:
        state = defaults()
        state[first] = value
        if second is not None:
            state[second] = other
        if lists is not None:
            state[lists] = []
        one = new()
        put_values(one, state)
        put_given(one, given())
        put_extra(one, {} if allows_extra else None)
        put_private(one, None)
        return one

    return make


def _state_of(made: Any) -> list[Any]:
    return [type(made), *(getattr(made, name) for name in _STATE)]
