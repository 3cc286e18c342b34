"""What a view was asked: the fields of a JSON object, checked, with errors that say what to change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from ...core.events import Event
from ...core.grammar import Format
from ...core.tools import Tools
from ...errors import UnbraidError
from ...formats import find
from ...metering import spend
from ...parsing import Parser

MOST_TEXT = 50_000
"""Characters of an output that the page shows. The parser itself has no such limit."""


class Question:
    """A request to a view. `format` is the name of one, or `template` holds a chat template or a tokenizer's
    configuration, of which it is detected. `tools` is a list, or JSON text as somebody types it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        found = self._fields.get(name)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise UnbraidError(f"{name} must be text", field=name)
        if len(found) > most:
            message = f"{name} has {len(found)} characters; the playground takes {most}: use the library for more"
            raise UnbraidError(message, field=name)
        return found

    def flag(self, name: str) -> bool | None:
        """True, false, or None where it is not given."""
        found = self._fields.get(name)
        if not isinstance(found, bool | None):
            raise UnbraidError(f"{name} must be true or false", field=name)
        return found

    def numbers(self, name: str) -> list[int]:
        found = self._fields.get(name) or []
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise UnbraidError(f"{name} must be a list of whole numbers", field=name)
        return found

    def value(self, name: str) -> Any:
        """As it was given: who uses it checks it."""
        return self._fields.get(name)

    def json(self, name: str) -> Any:
        """A value, or JSON text as somebody types it; None where there is none."""
        found = self._fields.get(name)
        if not isinstance(found, str):
            return found
        if not found.strip():
            return None
        try:
            return json.loads(found)
        except (ValueError, RecursionError) as error:
            raise UnbraidError(f"{name} is not JSON: {error}", field=name) from error

    @cached_property
    def format(self) -> Format:
        template = self.text("template", 1_000_000)
        if not template.strip():
            return find(self.text("format"))
        from .detecting import detection_of  # loads Jinja

        found = detection_of(template)
        if found.format is None:
            raise UnbraidError(found.problem, field="template")
        return found.format

    @cached_property
    def tools(self) -> Tools | None:
        found = self.json("tools")
        return None if found is None else Tools(found)

    @property
    def unknown_tools(self) -> Literal["text", "emit"]:
        return "emit" if self.flag("emit_unknown") else "text"

    @property
    def prompt(self) -> str | None:
        """The end of the prompt; None for the format's own."""
        return None if self._fields.get("prompt") is None else self.text("prompt")

    def parser(self, *, markup: bool) -> Parser:
        """A parser for the output. Ids of calls are the same each time."""
        return Parser(
            self.format,
            tools=self.tools,
            unknown_tools=self.unknown_tools,
            prompt=self.prompt,
            separate_reasoning=self.flag("separate_reasoning") is not False,
            calls_in_reasoning=self.flag("calls_in_reasoning"),
            markup=markup,
            seed=0,
        )

    def steps(self, pieces: Iterable[str], *, markup: bool) -> Iterator[list[Event]]:
        """The events that each chunk brings, and last those that the end of the output brings."""
        parser = self.parser(markup=markup)
        for piece in pieces:
            spend(1 + len(piece))
            yield parser.feed(piece)
        yield parser.finish(end_of_turn=self.ended)

    @property
    def ended(self) -> bool:
        """Whether the model has ended its turn; otherwise the output was cut off."""
        return self.flag("end_of_turn") is not False

    @property
    def pieces(self) -> list[str]:
        """The text, cut at `cuts`: the places, in characters, where chunks end."""
        text = self.text("text")
        inside = sorted({at for at in self.numbers("cuts") if 0 < at < len(text)})
        return [text[start:end] for start, end in zip([0, *inside], [*inside, len(text)], strict=True)] if text else []
