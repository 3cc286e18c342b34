"""Going on from a turn: whether the template would, what comes between, and the next prompt.

Ids alone are enough for templates whose bridges do not depend on messages long before. For the others the prompt must
know its messages: `render` and `extend` return such prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..templates.traced_text import REASONING_FIELDS
from .bridges import Bridge, Bridges, NoBridge
from .masking import Masker
from .proof import Proof
from .recipes import Recipes
from .shapes import TOOLS, USER, Shape, answered, shape_of
from .values import MaskPart, Messages, Rendering, Tools, TrainingMasks, Turn, ids_of


class Extension:
    """Goes on from the turns of one model.

    stop_texts: the tokens that end a turn, with their texts.
    """

    def __init__(
        self, bridges: Bridges, recipes: Recipes, proof: Proof, masker: Masker, stop_texts: Mapping[int, str]
    ) -> None:
        self._bridges = bridges
        self._proof = proof
        self._masker = masker
        self._recipes = recipes
        self._stop_texts = stop_texts

    def obstacle(
        self,
        turn: Turn,
        prompt: Rendering | Sequence[int],
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> str | None:
        """Why the template would rewrite what stands before the new messages; None if it would not."""
        shape = answered(shape_of(turn.settled), new)
        return self._proof.obstacle(
            shape,
            new,
            earlier=_has_reasoned(prompt),
            tools=tools or (TOOLS if shape.calls else None),
            variables=variables,
        )

    def read(self, new: Messages) -> list[dict[str, Any]]:
        """The new messages, checked and in one form. Raises `InvalidMessages`."""
        return self._bridges.builder.read(new) if new else []

    def check(
        self,
        prompt: Rendering | Sequence[int],
        turn: Turn,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> None:
        """Raises `NoBridge` where there is no next prompt."""
        self._bridge(prompt, answered(shape_of(turn.settled), new), turn, new, tools, variables)

    def _bridge(
        self,
        prompt: Rendering | Sequence[int],
        shape: Shape,
        turn: Turn,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> tuple[tuple[int, ...], Callable[[], Bridge]]:
        """The ids of the bridge after the turn, and a function that renders it. Raises `NoBridge` if there is none."""
        read = self.read(new)
        history: Messages = [USER]
        if self._proof.depends_on_history is not None:
            if not isinstance(prompt, Rendering) or prompt.given is None:
                raise NoBridge(f"{self._proof.depends_on_history}: give the prompt as `render` returned it, not as ids")
            history = prompt.given
        shown: Tools | None = TOOLS if tools or shape.calls else None
        if self._proof.depends_on_tools:
            shown = tools
        stopped_at = None if turn.stop_id is None else self._stop_texts[turn.stop_id]

        def rendered() -> Bridge:
            return self._bridges.between(
                history, shape.message(), new, stopped_at=stopped_at, tools=shown, variables=variables
            )

        text = None
        if self._proof.depends_on_history is None and not self._proof.depends_on_tools:
            text = self._recipes.text(shape, read, stopped_at=stopped_at, tools=shown, variables=variables)
        if text is not None:
            return self._bridges.encoded(text, stopped_at), rendered
        bridge = rendered()
        return self._bridges.encoded(bridge.text, stopped_at), lambda: bridge

    def extended(
        self,
        prompt: Rendering | Sequence[int],
        sampled: Sequence[int],
        turn: Turn,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> Rendering:
        """The next prompt. Raises `NoBridge`."""
        shape = answered(shape_of(turn.settled), new)
        following, bridge = self._bridge(prompt, shape, turn, new, tools, variables)
        before = ids_of(prompt) or ()
        messages_before = list(prompt.given) if isinstance(prompt, Rendering) and prompt.given is not None else None
        said = turn.to_openai()
        for call, (id, _) in zip(said.get("tool_calls", ()), shape.calls, strict=False):
            call["id"] = id
        if messages_before is not None and isinstance(prompt, Rendering) and prompt.continues:
            begun = messages_before.pop()
            said["content"] = f"{begun.get('content') or ''}{said['content'] or ''}"
        number = 0 if messages_before is None else len(messages_before)

        def masks() -> TrainingMasks:
            count = len(sampled)
            own = TrainingMasks((number,) * count, (True,) * count, tuple(not each for each in turn.markup))
            return own.followed_by(self._masker.of_bridge(bridge(), following, number, new, variables))

        if isinstance(prompt, Rendering):
            parts = prompt.parts
        else:
            size = len(before)
            parts = (MaskPart(lambda: TrainingMasks.of_nobody(size)),)
        return Rendering(
            (*before, *sampled, *following),
            (*parts, MaskPart(masks, number if messages_before is not None else None)),
            messages=None if messages_before is None else [*messages_before, said, *new],
            tools=tools,
            variables=variables,
        )


def _has_reasoned(prompt: Rendering | Sequence[int]) -> bool:
    """Whether the model has reasoned and called since the user last spoke, as far as the messages tell."""
    if not isinstance(prompt, Rendering) or prompt.given is None:
        return False
    for message in reversed(prompt.given):
        if message.get("role") == "user":
            return False
        if message.get("role") == "assistant" and any(message.get(name) for name in REASONING_FIELDS):
            return True
    return False
