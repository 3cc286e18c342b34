"""What a client asks of a chat model, in no dialect, and the words that its dialect has for it.

Each dialect of `server.api` reads its own body into a `ChatTask`. An error about the task names the field of the
client's request: whoever works on a task does so inside `in_its_words`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import UnbraidError

_MESSAGE = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")
_TOOL = re.compile(r"\btools\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class SoFar:
    """The ids that a chat goes on from."""

    prompt: tuple[int, ...]
    """What the model was last given; with what it sampled, where that is not given apart."""
    sampled: tuple[int, ...] | None
    past: Literal["template", "sampled"] = "template"
    """What counts where the template would rewrite what was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTask:
    """What a client asks of a chat model, in no dialect."""

    messages: Sequence[Mapping[str, Any]]
    """With `so_far`, those that are new."""
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
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    separate_reasoning: bool = True
    calls_in_reasoning: bool | None = None
    choices: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The values of `SAMPLING` that the request sets."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    max_tokens: int | None = None
    thinking_budget: int | None = None
    """After so many tokens of reasoning, its end is forced. 0 for none; None for as many as the model likes."""
    clip: bool = False
    """Whether `max_tokens` is an upper limit alone: the output also ends where the context does. Without it, an engine
    refuses what may not fit."""
    needs_ids: str = ""
    """The field that asks for token ids, where one does."""
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    logprobs: int | None = None
    """How many alternatives to report for each token; None for nothing."""
    drop_oldest: bool = False
    """Whether a conversation that does not fit the context loses its oldest turns, and is not an error."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the dialect calls fields: those of a `Generation` (`prompt`, `max_tokens`), and of this task."""
    places: Sequence[str] = ()
    """What the dialect calls each of the messages (`input[3]`), where it is not `messages[3]`."""
    tool_places: Sequence[str] = ()
    """The same for the tools."""
    part_places: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """The same for parts of a content, by the numbers of message and part."""

    @contextmanager
    def in_its_words(self) -> Iterator[None]:
        """Errors about fields are raised with the names that the dialect has for them."""
        try:
            yield
        except UnbraidError as error:
            message, field = self._placed(str(error)), error.field and self._placed(error.field)
            for ours, theirs in self.names.items():
                if field is not None and re.match(rf"{ours}\b", field):
                    field = theirs + field[len(ours) :]
                    message = re.sub(rf"^{ours}\b", theirs, message)
                    break
            error.args, error.field = (message,), field
            raise

    def _placed(self, text: str) -> str:
        """A text that names messages and tools by their numbers, with their places in the request."""
        text = _MESSAGE.sub(self._message_place, text) if self.places else text
        return _TOOL.sub(self._tool_place, text) if self.tool_places else text

    def _message_place(self, found: re.Match[str]) -> str:
        at = int(found[1])
        message = self.places[at] if at < len(self.places) else f"messages[{at}]"
        if found[2] is None:
            return message
        return self.part_places.get((at, int(found[2])), f"{message}.content[{found[2]}]")

    def _tool_place(self, found: re.Match[str]) -> str:
        at = int(found[1])
        return self.tool_places[at] if at < len(self.tool_places) else found[0]
