"""Bridges without a rendering, for messages of a kind that was rendered before.

The text after a turn depends on the kind of the next messages (roles, names, fields) and on their texts. The first
time, the template is run with symbols in the place of the texts (`templates.symbolic_text`). That gives a recipe: the
bridge, with places for the texts of the next messages, and the guards under which it holds. A recipe is used only after
it has made the bridge to other messages of the same kind exactly as the template does.

There is no recipe if the template looks at texts in a way that symbols cannot follow, or if a polyfill replaces
messages. Then each bridge is rendered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..caching import LruCache
from ..templates.prompt.builder import PromptBuilder
from ..templates.sandbox.budget import stopped_clock
from ..templates.symbolic_text import Recipe, Record, are_unmarked, places
from .bridges import Bridges, NoBridge
from .shapes import USER, WORD, Shape
from .values import Tools, key_of

_KINDS = 256
"""For so many kinds of messages recipes are kept."""
_RECIPES = 4
"""For each kind there are at most so many."""
_SAID = frozenset({"content", "tool_call_id", "name"})
"""Fields of a message that a recipe takes, and the name, which a result may have of its call."""
_OTHERWISE = (f"{WORD} {{}} {WORD}", f"{{}} {WORD}", f"{WORD} {{}}")
"""Ways to say something else, to find one that the guards allow."""
_LONGEST = 1_000_000
"""Messages with more characters are rendered: the sandbox has its limits."""


class Recipes:
    """The recipes of one template's bridges."""

    def __init__(self, builder: PromptBuilder, bridges: Bridges) -> None:
        self._builder = builder
        self._bridges = bridges
        self._recipes: LruCache[bytes, tuple[Recipe, ...] | None] = LruCache(_KINDS)

    def text(
        self,
        shape: Shape,
        new: Sequence[dict[str, Any]],
        *,
        stopped_at: str | None,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> str | None:
        """The text of the bridge after a turn of this shape, with marks; None where it must be rendered."""
        kind, inputs = self._kind_and_inputs(shape, new, bool(tools))
        key = key_of((stopped_at, bool(tools), variables, *kind))
        recipes = self._recipes.get(key, ())
        if recipes is None or not are_unmarked(inputs) or sum(map(len, inputs)) > _LONGEST:
            return None
        for recipe in recipes:
            if (text := recipe.text(inputs)) is not None:
                return text
        if len(recipes) < _RECIPES:
            new_recipe = self._new_recipe(shape, new, stopped_at=stopped_at, tools=tools, variables=variables)
            self._recipes[key] = None if new_recipe is None else (*recipes, new_recipe)
        return None

    def _kind_and_inputs(
        self, shape: Shape, new: Sequence[dict[str, Any]], tools: bool
    ) -> tuple[tuple[Any, ...], list[str]]:
        """Of which kind the turn and the messages are, and what they say, in the order in which a recipe takes it."""
        calls = [{"id": id, "function": {"name": name, "arguments": "{}"}} for id, name in shape.calls]
        messages = [{"role": "assistant", "content": "", "tool_calls": calls}, *new]
        kinds: list[Any] = [shape.content, shape.reasoning, *(name for _, name in shape.calls)]
        names = dict(shape.calls)
        for message in new:
            name = message.get("name") or (names.get(message.get("tool_call_id", "")) if names else None)
            kinds += [name, {key: value for key, value in message.items() if key not in _SAID}, len(message)]
        adapted = self._builder.adapted(messages, tools=tools)
        return tuple(kinds), [holder[name] for _, _, holder, name in places(adapted)]

    def _new_recipe(self, shape: Shape, new: Sequence[dict[str, Any]], **request: Any) -> Recipe | None:
        """A recipe that the template agrees with."""
        record, turn = Record(), shape.message()
        try:
            recipe = record.recipe(self._bridges.between([USER], turn, new, record=record, **request).text)
            for pattern in _OTHERWISE if recipe is not None else ():
                others = [{**message, "content": pattern.format(message["content"])} for message in new]
                _, inputs = self._kind_and_inputs(shape, others, bool(request["tools"]))
                if recipe is not None and (text := recipe.text(inputs)) is not None:
                    with stopped_clock():  # and on another day
                        same = self._bridges.between([USER], turn, others, **request).text == text
                    return recipe if same else None
        except NoBridge:
            pass
        return None
