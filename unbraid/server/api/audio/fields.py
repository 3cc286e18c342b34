"""The fields of a multipart form, read and checked one by one."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from starlette.datastructures import FormData

from ...errors import ApiError
from ...http import whole_number

_log = logging.getLogger(__name__)


class Fields:
    """The fields of a form, all of which are text.

    known: the names that have a meaning; others are logged.
    """

    def __init__(self, form: FormData, known: Collection[str]) -> None:
        self._form = form
        for name in form:
            if name.partition("[")[0] not in known:
                _log.warning("a transcription request has a field %.64r that is not known here", name)

    def all(self, name: str) -> list[str]:
        found = [*self._form.getlist(name), *self._form.getlist(f"{name}[]")]
        return [value for value in found if isinstance(value, str) and value]

    def inside(self, name: str) -> dict[str, str]:
        """The fields of an object that is spread over the form: `name[key]`."""
        found = {}
        for key, value in self._form.multi_items():
            if key.startswith(f"{name}[") and key.endswith("]") and isinstance(value, str):
                found[key[len(name) + 1 : -1]] = value
        return found

    def text(self, name: str) -> str:
        value = self._form.get(name, "")
        if not isinstance(value, str):
            raise ApiError(400, f"{name} must be text, not a file", param=name)
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        text = self.text(name)
        return number_in(text, name, least, most) if text else None

    def integer(self, name: str, least: int) -> int | None:
        text = self.text(name)
        if not text:
            return None
        number = whole_number(text)
        if number is None or number < least:
            raise ApiError(400, f"{name} must be a whole number, {least} or more, not {text[:64]!r}", param=name)
        return number

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "0", "1", "false", "true"):
            raise ApiError(400, f"{name} must be true or false, not {text[:64]!r}", param=name)
        return text in ("1", "true")

    def one_of(self, name: str, known: tuple[Any, ...], otherwise: Any) -> Any:
        text = self.text(name) or otherwise
        if text not in known:
            raise ApiError(400, f"{name} must be one of {', '.join(known)}, not {text[:64]!r}", param=name)
        return text


def number_in(text: object, name: str, least: float, most: float) -> float:
    """A number, by its text. Raises `ApiError` for another one."""
    try:
        value = float(str(text))
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ApiError(400, f"{name} must be a number from {least:g} to {most:g}, not {str(text)[:64]!r}", param=name)
    return value
