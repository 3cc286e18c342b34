"""What keeps `import unbraid` fast.

Frozen dataclasses share one `__repr__`, instead of generating one each. Search patterns are compiled when first used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[_T]) -> type[_T]:
    """A frozen dataclass with slots."""
    cls.__repr__ = _repr  # type: ignore[method-assign]
    return dataclass(frozen=True, slots=True, repr=False)(cls)


def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


P = ParamSpec("P")
T = TypeVar("T")


def lazily(make: Callable[[], Callable[P, T]]) -> Callable[P, T]:
    """The function that `make` returns, made with its first call."""
    function: Callable[P, T] | None = None

    def call(*args: P.args, **more: P.kwargs) -> T:
        nonlocal function
        if function is None:
            function = make()
        return function(*args, **more)

    return call
