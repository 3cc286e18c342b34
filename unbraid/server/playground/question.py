"""A question to a view: the fields of a JSON object, checked, with errors that say what to change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from ...core.events import Event
from ...core.grammar import Format
from ...core.tools import Tools
from ...errors import UnbraidError
from ...formats import find
from ...metering import spend
from ...parsing import Parser

if TYPE_CHECKING:
    from ...templates.detection import Detection

MOST_TEXT = 50_000
"""Characters of an output that the page shows. The parser itself has no such limit."""


class Question:
    """A request to a view. `format` is the name of a format; or `template` holds a chat template or a tokenizer's
    configuration, from which the format is detected. `tools` is a list, or JSON text as somebody types it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        text = self._fields.get(name)
        if text is None:
            return ""
        if not isinstance(text, str):
            raise UnbraidError(f"{name} must be text", field=name)
        if len(text) > most:
            message = f"{name} has {len(text)} characters; the playground takes {most}: use the library for more"
            raise UnbraidError(message, field=name)
        return text

    def flag(self, name: str) -> bool | None:
        """True, false, or None if the field is missing."""
        flag = self._fields.get(name)
        if not isinstance(flag, bool | None):
            raise UnbraidError(f"{name} must be true or false", field=name)
        return flag

    def numbers(self, name: str) -> list[int]:
        numbers = self._fields.get(name) or []
        if not isinstance(numbers, list) or not all(type(one) is int for one in numbers):
            raise UnbraidError(f"{name} must be a list of whole numbers", field=name)
        return numbers

    def value(self, name: str) -> Any:
        """A field as it came. Whoever uses it checks it."""
        return self._fields.get(name)

    def json(self, name: str) -> Any:
        """A value, or JSON text as somebody types it; None if there is none."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            return value
        if not value.strip():
            return None
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UnbraidError(f"{name} is not JSON: {error}", field=name) from error

    @cached_property
    def format(self) -> Format:
        template = self.text("template", 1_000_000)
        if not template.strip():
            return find(self.text("format"))
        detection = detection_of(template)
        if detection.format is None:
            raise UnbraidError(detection.problem, field="template")
        return detection.format

    @cached_property
    def tools(self) -> Tools | None:
        tools = self.json("tools")
        return None if tools is None else Tools(tools)

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


@lru_cache(maxsize=8)
def detection_of(pasted: str) -> Detection:
    """The format of a chat template, or of the JSON of a model's `tokenizer_config.json`, with the reasons."""
    from ...templates.detection import detect  # loads Jinja

    if pasted.lstrip().startswith("{") and not pasted.lstrip().startswith(("{{", "{%", "{#")):
        try:
            config = json.loads(pasted)
        except (ValueError, RecursionError) as error:
            raise UnbraidError(f"this is neither a template nor JSON: {error}", field="template") from error
        return detect(config)
    return detect(pasted)
