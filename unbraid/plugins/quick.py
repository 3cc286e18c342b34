"""Quick: the engines' messages (pydantic models) without validation, which is most of what a delta would cost.

The values are ours and of the right types, so there is nothing to validate. `maker` has pydantic make one real message,
and then makes others like it: the same defaults, the same fields that count as set. Where pydantic keeps its state in
another way than here, the real constructor is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_STATE = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def maker(kind: type[Any], **example: Any) -> Callable[..., Any]:
    """A function that makes a `kind` with other values for the same fields; all of them must be given."""
    made = kind(**example)
    if not all(hasattr(made, name) for name in _STATE) or made.__pydantic_private__ is not None:
        return kind
    defaults, given, extra = dict(made.__dict__), frozenset(made.__pydantic_fields_set__), made.__pydantic_extra__
    fresh = {
        name: type(value)
        for name, value in defaults.items()
        if name not in example and isinstance(value, list | dict | set)
    }
    new, put = object.__new__, object.__setattr__

    def make(**values: Any) -> Any:
        one = new(kind)
        state = {**defaults, **values}
        for name, empty in fresh.items():
            state[name] = empty()
        put(one, "__dict__", state)
        put(one, "__pydantic_fields_set__", set(given))
        put(one, "__pydantic_extra__", None if extra is None else {})
        put(one, "__pydantic_private__", None)
        return one

    return make if repr(make(**example)) == repr(made) else kind
