"""Bridges without a rendering, for messages of a kind that was rendered before.

The text after a turn depends on the kind of the next messages (roles, names, fields) and on their texts. The template
is run with symbols in the place of the texts (`templates.symbolic_text`). That gives a recipe: the bridge, with places
for the texts of the next messages, and the guards under which it holds. A recipe is used only after it has made the
bridge to other messages of the same kind exactly as the template does.

There is no recipe if the template looks at texts in a way that symbols cannot follow, or if a polyfill replaces
messages. Then each bridge is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..templates.sandbox.budget import stopped_clock
from ..templates.symbolic_text import Recipe, Record, are_unmarked
from .bridges import Bridge, NoBridge
from .shapes import WORD
from .values import Messages

_MOST = 4
"""For each kind of messages there are at most so many."""
_OTHERWISE = (f"{WORD} {{}} {WORD}", f"{{}} {WORD}", f"{WORD} {{}}")
"""Ways to say something else, to find one that the guards allow."""
_LONGEST = 1_000_000
"""Messages with more characters are rendered: the sandbox has its limits."""


class Recipes:
    """The recipes for the bridges after turns of one kind."""

    def __init__(self) -> None:
        self._recipes: tuple[Recipe, ...] | None = ()

    def text(self, inputs: Sequence[str]) -> str | None:
        """The text of the bridge, with marks; None where it must be rendered."""
        if not self._recipes or not _followed(inputs):
            return None
        return next((text for recipe in self._recipes if (text := recipe.text(inputs)) is not None), None)

    def learn(
        self,
        new: Messages,
        inputs: Sequence[str],
        between: Callable[..., Bridge],
        inputs_of: Callable[[Messages], Sequence[str]],
    ) -> None:
        """Make a recipe for messages like these, if there can be one.

        between: the bridge to messages, rendered; it takes `record`, too.
        inputs_of: the texts of messages that a recipe takes.
        """
        if self._recipes is None or len(self._recipes) >= _MOST or not _followed(inputs):
            return
        recipe = self._recipe(new, between, inputs_of)
        self._recipes = None if recipe is None else (*self._recipes, recipe)

    def _recipe(
        self, new: Messages, between: Callable[..., Bridge], inputs_of: Callable[[Messages], Sequence[str]]
    ) -> Recipe | None:
        record = Record()
        try:
            recipe = record.recipe(between(new, record=record).text)
            if recipe is None or not all(isinstance(message.get("content"), str) for message in new):
                return None
            for pattern in _OTHERWISE:
                others: list[dict[str, Any]] = [
                    {**message, "content": pattern.format(message["content"])} for message in new
                ]
                text = recipe.text(inputs_of(others))
                if text is not None:
                    with stopped_clock():  # and on another day
                        return recipe if between(others).text == text else None
        except NoBridge:
            pass
        return None


def _followed(inputs: Sequence[str]) -> bool:
    return are_unmarked(inputs) and sum(map(len, inputs)) <= _LONGEST
