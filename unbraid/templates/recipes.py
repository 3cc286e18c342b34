"""What a template writes, without a rendering, for messages of a kind that was rendered before.

What a template writes depends on the kind of the messages (roles, names, fields) and on their texts. The template is
run with symbols in the place of the texts (`symbolic_text`). That gives a recipe: the output, with places for the
texts, and the guards under which it holds. A recipe is used only after it has made the output for other messages of the
same kind exactly as the template does, at another time of day.

There is no recipe if the template looks at texts in a way that symbols cannot follow. Then each output is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .sandbox.budget import stopped_clock
from .symbolic_text import Recipe, Record, are_unmarked

Messages = Sequence[Mapping[str, Any]]
_MOST = 4
"""For each kind of messages there are at most so many."""
_WORD = "Qz"
_OTHERWISE = (f"{_WORD} {{}} {_WORD}", f"{{}} {_WORD}", f"{_WORD} {{}}")
"""Ways to say something else, to find one that the guards allow."""
_LONGEST = 1_000_000
"""Messages with more characters are rendered: the sandbox has its limits."""


class Write(Protocol):
    """Renders messages; None if that cannot be done."""

    def __call__(self, messages: Messages, record: Record | None = None, /) -> str | None: ...


class Recipes:
    """The recipes for messages of one kind."""

    def __init__(self) -> None:
        self._recipes: tuple[Recipe, ...] | None = ()

    def text(self, inputs: Sequence[str]) -> str | None:
        """The output, with marks; None where it must be rendered."""
        if not self._recipes or not _followed(inputs):
            return None
        for recipe in self._recipes:
            text = recipe.text(inputs)
            if text is not None:
                return text
        return None

    def learn(
        self, messages: Messages, inputs: Sequence[str], write: Write, inputs_of: Callable[[Messages], Sequence[str]]
    ) -> None:
        """Make a recipe for messages like these, if there can be one.

        inputs_of: the texts of messages that a recipe takes.
        """
        if self._recipes is None or len(self._recipes) >= _MOST or not _followed(inputs):
            return
        recipes, self._recipes = self._recipes, None  # what cannot be tried in time is not tried again
        recipe = _recipe(messages, write, inputs_of)
        self._recipes = None if recipe is None else (*recipes, recipe)


def _recipe(messages: Messages, write: Write, inputs_of: Callable[[Messages], Sequence[str]]) -> Recipe | None:
    record = Record()
    output = write(messages, record)
    recipe = None if output is None else record.recipe(output)
    if recipe is None or not all(isinstance(message.get("content"), str) for message in messages):
        return None
    for pattern in _OTHERWISE:
        others = [{**message, "content": pattern.format(message["content"])} for message in messages]
        text = recipe.text(inputs_of(others))
        if text is not None:
            with stopped_clock():  # and on another day
                return recipe if write(others) == text else None
    return None


def _followed(inputs: Sequence[str]) -> bool:
    return are_unmarked(inputs) and sum(map(len, inputs)) <= _LONGEST
