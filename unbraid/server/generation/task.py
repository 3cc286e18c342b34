"""What a client asks of a chat model, in no dialect, and what its dialect calls the parts of it.

Each dialect reads its own body into a `ChatTask`. An error about the task carries the place in the task
(`messages[1]`); the client is told the place in its own request (`input[4]`). Whoever works on a task does so inside
`in_its_words`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from msgspec import Struct, field

from ...caching import LocalDict
from ...errors import Keys, Place, Renaming, UnbraidError
from ..limits import check_limits

ClientPlaces = Mapping[Keys, Keys | Place]
"""Paths in a task, and the places in the client's request that stand there. A path is enough for most of them."""


@dataclass(frozen=True, slots=True)
class SoFar:
    """The ids that a chat goes on from."""

    prompt: tuple[int, ...]
    """What the model was last given; with what it sampled, where that is not given apart."""
    sampled: tuple[int, ...] | None
    past: Literal["template", "sampled"] = "template"
    """Which of the two is kept if the template would rewrite what was sampled."""


class ChatTask(Struct, frozen=True, kw_only=True):
    """What a client asks of a chat model, in no dialect."""

    messages: Sequence[Mapping[str, Any]]
    """The conversation; with `so_far`, only its new messages."""
    so_far: SoFar | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    speak: bool = False
    """Whether the model is to speak, where it can."""
    must_speak: bool = False
    """Whether a model that cannot speak is an error."""
    template_kwargs: Mapping[str, Any] = {}
    separate_reasoning: bool = True
    calls_in_reasoning: bool | None = None
    choices: int = 1
    sampling: Mapping[str, Any] = {}
    """The values of `SAMPLING` that the request sets."""
    logit_bias: Mapping[int, float] = {}
    max_tokens: int | None = None
    thinking_budget: int | None = None
    """After so many tokens of reasoning, its end is forced. 0 for none; None for as many as the model likes."""
    clip: bool = False
    """Whether the output may end early because the context is full. If not, an engine refuses a `max_tokens` that may
    not fit."""
    needs_ids: str = ""
    """The field that asks for token ids, where one does."""
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    logprobs: int | None = None
    """How many alternatives to report for each token; None for nothing."""
    drop_oldest: bool = False
    """Whether a conversation that does not fit the context loses its oldest turns, and is not an error."""
    places: ClientPlaces = {}
    """What the client calls parts of this task and of the `Generation` made of it, where it calls them otherwise."""
    kept: dict[str, Any] = field(default_factory=LocalDict)
    """What is kept for tasks that differ from this one in the messages alone, which are made of it."""

    def __post_init__(self) -> None:
        """Raises `UnbraidError` where there is more of something than `server.limits` allows."""
        try:
            check_limits(messages=self.messages, tools=self.tools)
        except UnbraidError as error:
            error.rename(self.place)
            raise

    def place(self, ours: str) -> Place:
        """What the client calls a part of this task."""
        return client_place(self.places, ours)

    def in_its_words(self) -> Renaming:
        """Errors name the parts of the client's request."""
        return client_words(self.places)


def client_words(places: ClientPlaces) -> Renaming:
    """Errors raised inside name the parts of the client's request."""
    return Renaming(partial(client_place, places))


def client_place(places: ClientPlaces, ours: str) -> Place:
    """What the client calls a part of a task.

    With `("messages", 1)` for `input[4]`, `messages[1]` is `input[4]`. What stands inside of a message is not what the
    client sent, unless it is listed, too: `messages[1].name` is written `input[4]: name`, and is about `input[4]`.
    """
    place = ours if isinstance(ours, Place) else Place(ours)
    path = place.path
    for size in range(len(path), 0, -1):
        theirs = places.get(path[:size])
        if theirs is None:
            continue
        theirs = theirs if isinstance(theirs, Place) else Place(*theirs)
        if theirs.path == path[:size]:
            return place
        inner = Place(*path[size:])
        if inner and path[0] == "messages" and size <= len(("messages", 0)):
            return Place(*theirs.path, text=f"{theirs}: {inner}")
        for step in inner.path:
            theirs = theirs / step
        return theirs
    return place
