"""The engine protocol: a `Generation` goes in, a stream of `Piece`s comes out, then one `Finish`.

The server, the tests and your code know engines only by this module. `Engine` has an example. An engine gives token ids
if it can, and text if it cannot. Closing the stream aborts the work. Every failure is an `EngineError`. An error about
one field of the request has its name in `field`: `prompt`, `max_tokens`, `constraint`, `audio` or `logit_bias`.

To add an engine, write a class with the methods of `Engine`, and add it to `engines.table`. For a server, start from
`engines.server`; for a model that blocks a thread, from `engines.jobs`. Both read chunks with an `engines.reader`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from ..constraints import Constraint
from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from ..fairness import FairQueue, HeldPlace, QueueFull, client

outgoing_headers: ContextVar[Callable[[str], Mapping[str, str]]] = ContextVar("unbraid.headers", default=lambda _: {})
"""Gives further headers for a request to the server with this URL, such as a request id. The caller of an engine sets
it, in its task. Only engines that are servers read it."""

costly_work: ContextVar[Callable[..., Awaitable[Any]]] = ContextVar("unbraid.work", default=asyncio.to_thread)
"""Runs a slow function of a module outside the event loop. The caller of an engine sets it, in its task, to bound the
cost; `OverBudget` is raised beyond the bound."""

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

    def numbers(self) -> dict[str, Any]:
        """All but the seed and the biases, as vLLM and SGLang name them: `{"temperature": 0.7, "top_p": 1.0, …}`."""
        return {name: getattr(self, name) for name in SAMPLING if name != "seed"}


SAMPLING = tuple(each.name for each in fields(Sampling) if each.name != "logit_bias")
"""The fields of `Sampling` that a request sets by the same names. **To add one, add it to `Sampling`**; clients set it
by the field of that name in `server.api.fields`."""


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording in the prompt."""

    data: bytes = field(repr=False)
    format: str
    """As in OpenAI's interface: "wav", "mp3" and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A request to an engine."""

    prompt: tuple[int, ...] | str
    """Token ids, or text if only the engine has the tokenizer."""
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """None for as many as the context has room for."""
    stop: tuple[str, ...] = ()
    """Texts that end the output. They are not part of it."""
    stop_tokens: tuple[int, ...] = ()
    """Tokens that end the output, besides the model's own. They are part of it, for the parser to read."""
    constraint: Constraint | None = None
    logprobs: int | None = None
    """How many alternatives to report for each token; 0 for the token alone, None for nothing."""
    audio: tuple[Audio, ...] = ()
    """The recordings for the prompt's audio placeholders, in order. Few engines take any."""
    written: int = 0
    """How many of the prompt's last tokens are output of an engine that broke off. Other fields are for the rest."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log probability of a token."""

    token: int
    bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    """The likeliest tokens at its place."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next tokens: ids if the engine knows them, otherwise text."""

    ids: tuple[int, ...] = ()
    text: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the output, always last."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """How many of the prompt's tokens were in the engine's cache."""
    stopped_by: str | int | None = None
    """The stop text or token that ended the output, if the engine tells it."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests an engine has now."""

    running: int = 0
    waiting: int = 0


class Engine(Protocol):
    """A model that continues prompts. A whole engine, which repeats the prompt token by token:

        class EchoEngine:
            model, vocabulary, context, load = "echo", None, 4096, Load()

            async def generate(self, request):
                if isinstance(request.prompt, str):
                    raise Unsupported("echo takes token ids", field="prompt")
                size = len(request.prompt)
                limit = size if request.max_tokens is None else min(size, request.max_tokens)
                for token in request.prompt[:limit]:
                    yield Piece((token,))
                yield Finish("stop" if limit == size else "length", size, limit)

            async def check(self): ...
            async def close(self): ...

    Its input and its output:

        >>> request = Generation(prompt=(9707, 11, 1879), max_tokens=2)
        >>> [output async for output in EchoEngine().generate(request)]
        [Piece(ids=(9707,)), Piece(ids=(11,)), Finish("length", prompt_tokens=3, completion_tokens=2)]
    """

    @property
    def model(self) -> str:
        """The engine's name for its model."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's tokens, if the engine knows them."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens of prompt and output together, if the engine knows it."""
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
    """Base of all errors of engines."""

    status: int | None = None
    """The HTTP status of a server that refused."""


class EngineDown(EngineError):
    """The engine cannot be reached, or takes no requests now. Trying again later may help."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineBusy(EngineDown):
    """The engine is well, but its queue is full. Its `status` is 429 if a server refused with that."""


async def turn(queue: FairQueue, name: str) -> HeldPlace:
    """Wait for the turn of the client that asks. Raises `EngineBusy` where there is no room to wait."""
    try:
        return await queue.enter(client.get())
    except QueueFull as full:
        raise busy(name, full) from None


def busy(name: str, full: QueueFull) -> EngineBusy:
    """The error for a request that finds no room to wait."""
    if not full.own:
        return EngineBusy(f"{name} has too many requests running and waiting already: try again later")
    error = EngineBusy(f"{name} has too many requests of yours running and waiting already: send fewer at a time")
    error.status = 429
    return error


class EngineFailed(EngineError):
    """The engine failed in the middle of an output."""


class EngineTimeout(EngineFailed):
    """The engine gave no output for too long."""


class PromptTooLong(EngineError):
    """Prompt and output do not fit the model's context; the message gives the numbers.

    Its `field` is `prompt` if the prompt alone is too long, and `max_tokens` if a shorter output would fit.
    """

    field = "prompt"


class Unsupported(EngineError):
    """The engine cannot do what the request asks for; the message says what to leave out."""


def refuse_penalties(request: Generation, engine: str, *names: str) -> None:
    """Refuse to continue an output under these penalties, for engines that would apply them only to the rest."""
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
