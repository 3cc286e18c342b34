"""The one small protocol of models that listen: a chunk of sound gives a stream of tokens and how it ended.

It is `unbraid.engines.base` with sound in place of a prompt; what the output must begin with is said as sets of tokens.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from ..constraints.dialects.token_sets import TokenSets
from ..core.vocabulary import Vocabulary
from ..engines.base import Piece
from .audio.decode import Samples

ANYTHING = TokenSets(())
HeardReason = Literal["stop", "length", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenRequest:
    """What a model is asked to listen to."""

    samples: Samples = field(repr=False)
    """Mono, 16 kHz; no longer than the model can take at once."""
    prompt: tuple[int, ...]
    """What the decoder is given before it says anything."""
    prefix: TokenSets = ANYTHING
    """What the output must begin with. Where a set has one token, nothing is chosen."""
    timestamps: bool = False
    """Whether times come in the output."""
    temperature: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    """As many as the model has room for, if None."""
    words: bool = False
    """Whether `ListenEnd.times` are wanted; only where the listener `tells_words`."""
    beams: int = 1
    """How many outputs are followed at once, of which the likeliest is told; at most the listener's `most_beams`, and
    only without a temperature."""


@dataclass(frozen=True, slots=True)
class Opening(Piece):
    """The first piece, where it is known from the first step on how likely it is that nobody spoke."""

    no_speech: float | None = None


@dataclass(frozen=True, slots=True)
class ListenEnd:
    """The end of the output."""

    reason: HeardReason
    """`loop`: the model began to repeat itself, and was stopped."""
    prompt_tokens: int
    completion_tokens: int
    no_speech: float | None = None
    """How likely it is that nobody spoke, where the model says it."""
    choices: Mapping[int, float] = field(default_factory=dict)
    """How likely each token of the first set was that had several, among them."""
    times: tuple[float, ...] = ()
    """Where `ListenRequest.words` asks for it: when each token of the output begins, in seconds of the chunk, and when
    the last one ends."""


@runtime_checkable
class TextVocabulary(Vocabulary, Protocol):
    """A vocabulary that makes tokens of text, too: a listener that has one takes the prompts of users."""

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text: what is spelled like a special token in it becomes none. Nothing is added."""
        ...


class Listener(Protocol):
    """A model that can be asked to listen.

    What not all of them can do, those that can say in attributes that the others need not have; ask `tells_words` and
    `most_beams` below.
    """

    @property
    def model(self) -> str:
        """What the model is called."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Its tokens. A `TextVocabulary` where users may give a prompt; None where its pieces are text."""
        ...

    @property
    def parallel(self) -> int:
        """How many chunks are worth asking for at once."""
        ...

    def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece, then `ListenEnd`. Each piece has the logprobs of its tokens; the first may be an
        `Opening`. Closing the generator aborts the work."""
        ...

    async def close(self) -> None:
        """Let everything go."""
        ...


def tells_words(listener: Listener) -> bool:
    """Whether a listener can tell when each token was said: its attribute `tells_words`."""
    return bool(getattr(listener, "tells_words", False))


def most_beams(listener: Listener) -> int:
    """How many outputs a listener can follow at once: its attribute `most_beams`."""
    return int(getattr(listener, "most_beams", 1))
