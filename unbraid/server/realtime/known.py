"""What an object of a client's event may have in it. A name that is not known is refused: it would change nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import ApiError


def check_names(fields: Mapping[str, object], names: Collection[str], where: str) -> None:
    """Raises `ApiError` for a field that is not in `names`. One that is null says nothing."""
    for name, value in fields.items():
        if name not in names and value is not None:
            message = f"{where}.{name:.64} is not known here; leave it out"
            raise ApiError(400, message, param=f"{where}.{name:.64}", code="unknown_parameter")


def is_one_of(value: object, names: Collection[str]) -> bool:
    """Whether a value of any type is one of these words."""
    return isinstance(value, str) and value in names
