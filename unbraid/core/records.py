"""Frozen dataclasses that are fast to import: they share one `__repr__`, instead of generating one for each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[_T]) -> type[_T]:
    """A frozen dataclass with slots."""
    cls.__repr__ = _repr  # type: ignore[method-assign]
    return dataclass(frozen=True, slots=True, repr=False)(cls)


def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"
