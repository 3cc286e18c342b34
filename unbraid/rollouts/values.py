"""What a renderer returns: prompts with masks, turns, and samples to train on.

A trajectory is a list of steps, each a prompt and the ids that were sampled after it. The steps are one sample if each
prompt begins with all ids before it, which `extend` makes sure of. So nothing is tokenized again, and the loss mask is
exactly what was sampled.
"""

from __future__ import annotations

import itertools
import json
import marshal
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Literal

from ..caching import LruCache
from ..core import diagnostics
from ..core.message import Message
from ..core.tally import STRANDS, LabelledTally
from ..errors import UnbraidError

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
Ended = Literal["stop", "length"]
PromptKey = int
_PLAIN = (list, tuple)
NOBODY = -1
"""The message number of an id that belongs to no message."""


@dataclass(frozen=True)
class TrainingMasks:
    """What each id of a prompt is."""

    messages: tuple[int, ...]
    """The number of the message that it belongs to; -1 where it belongs to none, as the generation prompt does."""
    sampled: tuple[bool, ...]
    """Whether it belongs to the output of a model: it is in a turn of the assistant, after the generation prompt and up
    to the token that ends the turn. The turn may have been written by a model, or given as a message."""
    content: tuple[bool, ...]
    """Whether it comes from what a message says, and not from the template."""

    @classmethod
    def of_nobody(cls, size: int) -> TrainingMasks:
        """The masks of ids whose messages are not known."""
        return cls((NOBODY,) * size, (False,) * size, (False,) * size)

    def followed_by(self, other: TrainingMasks) -> TrainingMasks:
        return TrainingMasks(self.messages + other.messages, self.sampled + other.sampled, self.content + other.content)


class MaskPart:
    """The masks of a stretch of a prompt, worked out when they are first asked for.

    turn: the number of the turn that the stretch begins with; the generation prompt before it then belongs to it.
    """

    def __init__(self, make: Callable[[], TrainingMasks], turn: int | None = None) -> None:
        self._make = make
        self.turn = turn

    @cached_property
    def masks(self) -> TrainingMasks:
        return self._make()

    def __reduce__(self) -> tuple[Callable[..., MaskPart], tuple[Any, ...]]:
        return _known_part, (self.masks, self.turn)


def _known_part(masks: TrainingMasks, turn: int | None) -> MaskPart:
    return MaskPart(lambda: masks, turn)


def _joined(parts: Sequence[MaskPart]) -> TrainingMasks:
    messages: list[int] = []
    sampled: list[bool] = []
    content: list[bool] = []
    for part in parts:
        at = len(messages)
        while part.turn is not None and at and messages[at - 1] == NOBODY:
            at -= 1
            messages[at] = part.turn
        messages += part.masks.messages
        sampled += part.masks.sampled
        content += part.masks.content
    return TrainingMasks(tuple(messages), tuple(sampled), tuple(content))


class Rendering:
    """A prompt: its ids, and for each of them what it is. The masks are worked out when they are first asked for."""

    def __init__(
        self,
        ids: tuple[int, ...],
        parts: tuple[MaskPart, ...],
        *,
        messages: Messages | None,
        tools: Tools | None,
        variables: Mapping[str, Any],
        notes: tuple[str, ...] = (),
        prompted: bool = True,
        continues: bool = False,
    ) -> None:
        self.ids = ids
        self.given = messages
        """The messages that it shows; None where only ids were given."""
        self.tools = tools
        self.variables = variables
        self.notes = notes
        """What was changed because the template does not support it, and what else there is to know."""
        self.prompted = prompted
        """Whether it ends with the generation prompt."""
        self.continues = continues
        """Whether the model goes on with the last message (`continue_final_message`)."""
        self.anew = False
        """Whether this is no continuation: the ids before it are not those that were sampled."""
        self.departure: str | None = None
        """Why the template would not write the ids before the new messages; None if it would."""
        self.standing: Any = None
        """Its messages in short, once they were looked at (`stand_ins.ShortHistory`)."""
        self.parts = parts

    def __repr__(self) -> str:
        return f"Rendering({len(self.ids)} ids{', anew' if self.anew else ''})"

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def masks(self) -> TrainingMasks:
        return _joined(self.parts)

    @property
    def messages(self) -> tuple[int, ...]:
        """For each id the number of its message."""
        return self.masks.messages

    @property
    def sampled(self) -> tuple[bool, ...]:
        """For each id whether it belongs to the output of a model (see `TrainingMasks.sampled`)."""
        return self.masks.sampled

    @property
    def content(self) -> tuple[bool, ...]:
        """For each id whether it comes from what a message says."""
        return self.masks.content

    def arrays(self) -> dict[str, Any]:
        """The ids and masks as numpy arrays."""
        return _arrays({"ids": self.ids, "messages": self.messages, "sampled": self.sampled, "content": self.content})


@dataclass(frozen=True)
class TokenSpan:
    """Tokens that follow each other and belong to one strand."""

    strand: str
    begin: int
    end: int


CallStatus = Literal["ok", "invalid_json", "malformed", "unknown", "cut_off"]
_STATUS: Mapping[str, CallStatus] = {
    "": "ok",
    diagnostics.MALFORMED_JSON: "invalid_json",
    diagnostics.ARGUMENTS_NOT_OBJECT: "invalid_json",
    diagnostics.UNKNOWN_TOOL: "unknown",
    diagnostics.UNFINISHED_CALL: "cut_off",
}
"""By the diagnostic that says what is wrong with a call; all others: malformed."""


@dataclass(frozen=True)
class CallAttempt:
    """A call that a model wrote, or tried to: the tokens from what opens it to what closes it. The markers around a
    list of calls belong to none of them."""

    status: CallStatus
    """`ok`: complete. `invalid_json`: its arguments are no JSON object. `malformed`: it does not follow the grammar of
    the format. `unknown`: no tool of the request has its name. `cut_off`: the output ends inside it."""
    name: str
    """Its function; empty where that is not known."""
    begin: int
    end: int
    index: int | None
    """Which of `Turn.message.tool_calls` it is; None where it is kept as text, or left out."""


@dataclass(frozen=True)
class TokenDiagnostic:
    """Something in a turn that is not as its format says."""

    kind: str
    """One of `unbraid.diagnostics`."""
    message: str
    at: int
    """The number of the token that it was noticed at; as many as there are tokens, at the end."""


_labelling = Lock()
"""Turns are cached, so two threads may have the same one."""


class Turn:
    """What a model wrote in one turn. What each id is, is worked out when it is first asked for.

    tally: knows what each id is.
    """

    def __init__(self, message: Message, tally: LabelledTally, ended: Ended, stop_id: int | None = None) -> None:
        self.message = message
        self.ended = ended
        """`stop`: with a token that ends the turn. `length`: without one, so it was cut off."""
        self.stop_id = stop_id
        """The token that ended it."""
        self._tally = tally

    @property
    def strands(self) -> tuple[str, ...]:
        """The strand of each id: `reasoning`, `content`, `tool_calls`, `speech` or `audio`."""
        return self._labels[0]

    @property
    def markup(self) -> tuple[bool, ...]:
        """For each id whether it is markup: a marker, the end of the turn, all of a call but its name and arguments."""
        return self._labels[1]

    @cached_property
    def _labels(self) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        with _labelling:
            return tuple(self._tally.labels), tuple(self._tally.markup)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Turn) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash((self.message, self.ended, self.stop_id))

    def __repr__(self) -> str:
        return f"Turn({self.message!r}, ended={self.ended!r})"

    def _all(self) -> tuple[object, ...]:
        return self.message, self.strands, self.markup, self.ended, self.stop_id

    @property
    def spans(self) -> tuple[TokenSpan, ...]:
        """The strands by token span."""
        spans, at = [], 0
        for strand, group in itertools.groupby(self.strands):
            size = sum(1 for _ in group)
            spans.append(TokenSpan(strand, at, at + size))
            at += size
        return tuple(spans)

    @cached_property
    def calls(self) -> tuple[CallAttempt, ...]:
        """Every call, and everything that was meant to be one, in order."""
        ends = self._token_ends
        attempts = []
        for begin, end, name, index, fault in self._tally.attempts:
            first = bisect_right(ends, begin)
            last = bisect_left(ends, end) + 1 if begin < end else first  # the prompt may have written all of it
            attempts.append(CallAttempt(_STATUS.get(fault, "malformed"), name, first, last, index))
        return tuple(attempts)

    @cached_property
    def reasoning_closed(self) -> bool | None:
        """Whether the reasoning came to its end; None where there is none. False where the output or the turn ends
        inside it."""
        if "reasoning" in self.strands or self.message.reasoning:
            return "reasoning" not in self._tally.open
        return False if "reasoning" in self._tally.open else None

    @cached_property
    def diagnostics(self) -> tuple[TokenDiagnostic, ...]:
        """The diagnostics of the message, by token."""
        ends = self._token_ends
        return tuple(
            TokenDiagnostic(each.kind, each.message, bisect_right(ends, each.start))
            for each in self.message.diagnostics
        )

    @cached_property
    def _token_ends(self) -> list[int]:
        """Where each token ends in the text."""
        with _labelling:
            return self._tally.up_to_date().token_ends

    @property
    def broken(self) -> bool:
        """Whether a call in it is not complete."""
        return any(not call.complete for call in self.message.tool_calls)

    @cached_property
    def settled(self) -> Message:
        """The turn as a message for others: incomplete calls become text, since nobody can answer them."""
        return self.message.settled() if self.broken else self.message

    def to_openai(self) -> dict[str, Any]:
        """The turn as a message of a conversation."""
        return self.settled.to_openai()


@dataclass(frozen=True)
class TrajectoryStep:
    """One turn of a trajectory: what the model was given, and what it wrote."""

    prompt: Rendering | Sequence[int]
    sampled: Sequence[int]
    logprobs: Sequence[float] | None = None
    """Of each id that was sampled."""


@dataclass(frozen=True)
class Sample:
    """A trajectory as one row to train on. All fields have one entry for each id."""

    ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    """1 for what was sampled."""
    weights: tuple[float, ...]
    """The weight of its strand for what was sampled, 0 for everything else."""
    strands: tuple[str, ...]
    """The strand of what was sampled, and an empty text for everything else."""
    turns: tuple[int, ...]
    """The number of the turn for what was sampled, -1 for everything else."""
    prompt_length: int
    """How many ids come before the first that was sampled."""
    logprobs: tuple[float, ...] | None = field(default=None)
    """Of what was sampled, 0 for everything else; None if a step has none."""

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """What comes before the first turn."""
        return self.ids[: self.prompt_length]

    @property
    def response_ids(self) -> tuple[int, ...]:
        """Everything from the first turn on, with what the environment said between the turns."""
        return self.ids[self.prompt_length :]

    @property
    def response_mask(self) -> tuple[int, ...]:
        """1 for what was sampled in `response_ids`."""
        return self.loss_mask[self.prompt_length :]

    def arrays(self) -> dict[str, Any]:
        """The fields as numpy arrays; strands by their number in `core.tally.STRANDS`, -1 for none."""
        numbers = [STRANDS.index(strand) if strand else -1 for strand in self.strands]
        columns = {"ids": self.ids, "loss_mask": self.loss_mask, "turns": self.turns, "strands": numbers}
        arrays = {**_arrays(columns), **_arrays({"weights": self.weights}, "float32")}
        return arrays if self.logprobs is None else {**arrays, **_arrays({"logprobs": self.logprobs}, "float32")}


def _arrays(values: Mapping[str, Sequence[Any]], kind: str | None = None) -> dict[str, Any]:
    try:
        import numpy
    except ImportError as error:
        raise UnbraidError("arrays need numpy, which is not installed: pip install numpy") from error
    return {name: numpy.asarray(each, dtype=kind) for name, each in values.items()}


def ids_of(prompt: Rendering | Sequence[int] | None) -> Sequence[int] | None:
    """The ids of a prompt, however it was given."""
    return prompt.ids if isinstance(prompt, Rendering) else None if prompt is None else plain_ids(prompt)


def plain_ids(ids: Sequence[int]) -> Sequence[int]:
    """Ids as plain integers: they may come as an array or a tensor."""
    return ids if isinstance(ids, _PLAIN) else [int(id) for id in ids]


class PromptKeys:
    """Keys of prompts: numbers, the same for the same ids and for no others. A prompt that was forgotten gets another
    number when it comes again. A tuple that came before is found without a look at its ids."""

    def __init__(self, most: int) -> None:
        self._numbers = itertools.count()
        self._known: LruCache[tuple[int, int], tuple[tuple[int, ...], PromptKey]] = LruCache(most)
        """By length and hash, which others may share: so the ids are compared."""
        self._tuples: LruCache[int, tuple[tuple[int, ...], PromptKey]] = LruCache(most)

    def of(self, ids: Sequence[int]) -> PromptKey:
        kept = self._tuples.get(id(ids))
        if kept is not None and kept[0] is ids:
            return kept[1]
        plain = tuple(ids)
        short = len(plain), hash(plain)
        kept = self._known.get(short)
        if kept is None or kept[0] != plain:
            kept = self._known[short] = plain, next(self._numbers)
        if plain is ids:  # a list may change
            self._tuples[id(plain)] = plain, kept[1]
        return kept[1]


def key_of(value: Any) -> bytes:
    """A key for a cache: the same for the same JSON, and for no other."""
    try:
        return marshal.dumps(value, 2)  # ten times as fast
    except ValueError:  # it is not plain JSON
        return json.dumps(value, default=repr).encode()


def joined_steps(
    parse: Callable[[TrajectoryStep], Turn], steps: Sequence[TrajectoryStep], weights: Mapping[str, float]
) -> Sample:
    """The steps of one trajectory as one row.

    parse: takes apart what was sampled in a step.
    """
    if not steps:
        raise UnbraidError("a trajectory needs at least one step: a prompt and what was sampled")
    unknown = sorted(set(weights) - set(STRANDS))
    if unknown:
        raise UnbraidError(f"weights: there is no strand {unknown[0]!r}, only {', '.join(STRANDS)}")
    ids: list[int] = []
    strands: list[str] = []
    turns: list[int] = []
    logprobs: list[float] | None = [] if all(step.logprobs is not None for step in steps) else None
    first = 0
    for number, step in enumerate(steps):
        prompt = list(step.prompt.ids if isinstance(step.prompt, Rendering) else map(int, step.prompt))
        if prompt[: len(ids)] != ids:
            at = next((at for at, pair in enumerate(zip(prompt, ids, strict=False)) if pair[0] != pair[1]), len(prompt))
            raise UnbraidError(
                f"step {number}: its prompt does not begin with the ids before it (they differ at {at}): the past was "
                "rewritten, so this is another trajectory; make one sample of the steps before it, and one from here"
            )
        first = first or len(prompt)
        turn = parse(step)
        added = len(prompt) - len(ids)
        strands += [""] * added + list(turn.strands)
        turns += [-1] * added + [number] * len(step.sampled)
        if logprobs is not None and step.logprobs is not None:
            if len(step.logprobs) != len(step.sampled):
                raise UnbraidError(f"step {number}: {len(step.logprobs)} logprobs for {len(step.sampled)} sampled ids")
            logprobs += [0.0] * added + list(step.logprobs)
        ids = [*prompt, *map(int, step.sampled)]
    mask = tuple(int(turn >= 0) for turn in turns)
    return Sample(
        tuple(ids),
        mask,
        tuple(float(weights.get(strand, 1.0)) if strand else 0.0 for strand in strands),
        tuple(strands),
        tuple(turns),
        first,
        None if logprobs is None else tuple(logprobs),
    )
