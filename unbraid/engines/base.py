"""The engine protocol: a `Generation` goes in, a stream of `Piece`s comes out, then one `Finish`.

Everything above (the server, the tests, your code) knows engines by this module alone. An engine gives token ids where
it can and text where it cannot. Closing the stream aborts the work; whatever goes wrong is an `EngineError`. An error
about one field of the request carries its name in `field`: `prompt`, `max_tokens`, `constraint`, `audio` or
`logit_bias`.

To add an engine, write a class with the methods of `Engine`. For one that is a server, start from `engines.server`; for
one that blocks a thread, from `engines.jobs`; both read what the engine says with a `Reader` of `engines.reader`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..constraints import Constraint
from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError

outgoing_headers: ContextVar[Callable[[str], Mapping[str, str]]] = ContextVar("unbraid.headers", default=lambda _: {})
"""Gives further headers for a request to the server with this URL, such as the id of what it is part of. Whoever calls
an engine sets it, in the task that calls. Engines that are no servers have no use for it."""

costly_work: ContextVar[Callable[..., Awaitable[Any]]] = ContextVar("unbraid.work", default=asyncio.to_thread)
"""Runs a function of a module with its arguments where it holds up nobody, since it may take long. Whoever calls an
engine sets it, in the task that calls, to bound what that costs; `OverBudget` says that it was too much."""

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen. The defaults leave the model's probabilities as they are."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 for all."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def clipped_bias(self) -> dict[int, float]:
        """`logit_bias` within what all servers take: 100 either way decides, and JSON has no infinity."""
        return {token: min(100.0, max(-100.0, bias)) for token, bias in self.logit_bias.items()}


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording that the prompt holds."""

    data: bytes = field(repr=False)
    format: str
    """As in OpenAI's interface: "wav", "mp3" and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What an engine is asked for."""

    prompt: tuple[int, ...] | str
    """Token ids, where the tokenizer is known; text where only the engine knows it."""
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """As many as the context has room for, if None."""
    stop: tuple[str, ...] = ()
    """Texts that end the output. They are not part of it."""
    stop_tokens: tuple[int, ...] = ()
    """Tokens that end the output besides the model's own. They are part of it: the parser knows them."""
    constraint: Constraint | None = None
    logprobs: int | None = None
    """How many alternatives to report for each token; 0 for the token alone, None for nothing."""
    audio: tuple[Audio, ...] = ()
    """The recordings for the prompt's audio placeholders, in order. Few engines take any."""
    written: int = 0
    """How many of the prompt's last tokens are output already, of an engine that broke off. All else is for the rest: a
    limit, a constraint."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was."""

    token: int
    bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    """The likeliest tokens in its place."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next tokens. An engine gives ids if it can, and text if it cannot; never neither."""

    ids: tuple[int, ...] = ()
    text: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the output: always the last thing that an engine says."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """How many of the prompt's tokens the engine knew already."""
    stopped_by: str | int | None = None
    """The stop text or token that ended it, where it is known."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests an engine has now."""

    running: int = 0
    waiting: int = 0


class Engine(Protocol):
    """A model that can be asked to go on with a prompt."""

    @property
    def model(self) -> str:
        """What the engine calls its model."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's tokens, where the engine knows them."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens that prompt and output can have together, where it is known."""
        ...

    @property
    def load(self) -> Load:
        """How many requests it has now."""
        ...

    def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece, then `Finish`. Closing the generator (`aclose`) aborts the work at once."""
        ...

    async def check(self) -> None:
        """Return if the engine can take requests now; raise `EngineDown` if not."""
        ...

    async def close(self) -> None:
        """Abort what runs, and free all resources."""
        ...


class EngineOptions(Protocol):
    """The settings that an engine in this process may read. `unbraid.server.settings.Settings` has them."""

    @property
    def model(self) -> str | None: ...
    @property
    def tokenizer(self) -> str | None: ...
    @property
    def replay(self) -> str | None: ...
    @property
    def context(self) -> int | None: ...
    @property
    def parallel(self) -> int: ...
    @property
    def queue(self) -> int: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def gpu_layers(self) -> int | None: ...
    def json_object(self, name: str, example: str) -> dict[str, Any]: ...


class EngineError(UnbraidError):
    """Base of what can go wrong with an engine."""

    status: int | None = None
    """The HTTP status of a server that refused."""


class EngineDown(EngineError):
    """The engine cannot be reached, or takes no requests now. Trying again later may help."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineBusy(EngineDown):
    """The engine is well, and has as many requests as it takes: its queue is full. Its `status` is 429 where a server
    refused with that."""


class EngineFailed(EngineError):
    """The engine failed in the middle of an output."""


class EngineTimeout(EngineFailed):
    """The engine gave no output for longer than it may."""


class PromptTooLong(EngineError):
    """Prompt and output do not fit the model's context; the message gives the numbers.

    Its `field` is `prompt` where the prompt alone is too long, and `max_tokens` where a shorter output would fit.
    """

    field = "prompt"


class Unsupported(EngineError):
    """The engine cannot do what was asked; the message says what to leave out."""


def refuse_penalties(request: Generation, engine: str, *names: str) -> None:
    """Refuse to go on with an output under these penalties, for engines that would count only its rest."""
    neutral = Sampling()
    for name in names if request.written else ():
        if getattr(request.sampling, name) != getattr(neutral, name):
            message = f"{engine} would count only the rest of the output for {name}: leave it out"
            raise Unsupported(message, field=name)


def refuse_audio(request: Generation, engine: str) -> None:
    """Refuse requests with audio, for engines that take none."""
    if request.audio:
        message = f"{engine} takes no audio: send text alone, or use SGLang or vLLM in this process"
        raise Unsupported(message, field="audio")
