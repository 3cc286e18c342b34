"""Requests and tokens a minute, for each client.

A client has two buckets, one of requests and one of tokens. A bucket holds what a minute allows and fills evenly. A
request takes one of the requests when it comes; tokens are taken when they are known, which is after the fact, so a
bucket of tokens can be in debt. A request is refused while there is not one request and one token in its buckets. So
over any length of time nobody gets more than the rate and what was under way when it was used up.

Memory: a client whose buckets are full again is as good as one never seen, and is forgotten. Of the others at most
`MOST_CLIENTS` are kept; beyond that the one seen longest ago is forgotten, and begins anew. Somebody with that many
addresses has as many limits anyway. Keys are few, and none is forgotten.

Several processes count together where there is a `Ledger`. The workers of one server ask their parent
(`running.supervisor.Link`). Several servers ask a Redis (`RedisLedger`), in one atomic step for each request; its clock
is the one that counts. While it cannot be asked, each process counts for itself: a server goes on without it.

`Quota` charges the tokens of a request to its client, also if the client leaves before the end. A quota that lets a
request in (`Quota.ask`) is the one of its task, and every generation that starts there finds it (`Quota.current`), in
tasks that go on in the background too. So a dialect has nothing to do with it. A prompt is charged when its generation
starts: once, however many choices there are. The output is charged when the generation ends, in whatever way. If the
engine counts tokens itself, its count is the one. Until then, and for good if the client leaves, tokens are counted as
they come, and text without tokens as four characters each. Recordings are charged by the seconds that were read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol
from urllib.parse import urlsplit

from ...engines import Finish, Generation, Piece
from ...errors import UnbraidError
from ..errors import ApiError

MOST_CLIENTS = 65_536
_MINUTE = 60.0
_TOKENS_A_SECOND = 10
"""Tokens that stand for a second of a recording, as OpenAI counts them."""
_CHARACTERS = 4
"""Characters that stand for a token, if only the engine knows the tokenizer."""

_ALONE = 5
"""Seconds in which a ledger that could not be asked is not asked again."""

Counted = Literal["requests", "tokens"]
_COUNTED: tuple[Counted, ...] = ("requests", "tokens")
_log = logging.getLogger(__name__)
Settled = tuple[bool, float, float]
"""Whether a request was taken, and what is left in the buckets of requests and of tokens."""
_REDIS_SECONDS = 1.0
"""How long a Redis may take."""


class LedgerDown(Exception):
    """Nobody can be asked now."""


class Ledger(Protocol):
    """Counts for several processes."""

    async def settle(self, client: str, limits: tuple[int, int], request: bool, tokens: int) -> Settled:
        """Take one request, if one is wanted and all limits allow it, and so many tokens. Raises `LedgerDown`.

        limits: requests and tokens a minute; 0 for none.
        """
        ...


@dataclass(slots=True)
class Bucket:
    """How much of a limit was left at the time `at`."""

    limit: int
    level: float
    at: float

    def fill(self, now: float) -> None:
        self.level = min(float(self.limit), self.level + (now - self.at) * self.limit / _MINUTE)
        self.at = now

    def until(self, level: float) -> float:
        """Seconds until the bucket holds `level`."""
        return max(0.0, (level - self.level) * _MINUTE / self.limit)


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of one of its limits a client has left."""

    counted: Counted
    limit: int
    remaining: int
    reset: float
    """Seconds until all of it is there again."""
    wait: float
    """Seconds until a request is taken; 0 where it is taken now."""


@dataclass(kw_only=True)
class Rates:
    """The limits of a server. 0: none."""

    requests: int = 0
    tokens: int = 0
    clock: Callable[[], float] = time.monotonic
    most_clients: int = MOST_CLIENTS
    ledger: Ledger | None = None
    """Counts for several processes, if there are."""
    _clients: dict[str, dict[Counted, Bucket]] = field(default_factory=dict, init=False)
    """The clients that are remembered, the one seen longest ago first."""
    _charges: set[asyncio.Task[Settled]] = field(default_factory=set, init=False)
    _alone_until: float = field(default=float("-inf"), init=False)
    """The ledger is not asked before, as it could not be asked lately."""

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens)

    def __len__(self) -> int:
        return len(self._clients)

    async def ask(self, client: str) -> list[Standing]:
        """Take one request of a client's, if all its limits allow it: then no standing says to wait."""
        return self._standings(*await self._settled(client, True, 0))

    async def standing(self, client: str) -> list[Standing]:
        """How much a client has left of each limit now."""
        _, *levels = await self._settled(client, False, 0)
        return self._standings(True, *levels)

    def charge(self, client: str, tokens: int) -> None:
        """Take tokens; give some back if `tokens` is negative."""
        if not self.tokens or not tokens:
            return
        if self.ledger is None:
            self.settle(client, False, tokens)
            return
        task = asyncio.get_running_loop().create_task(self._settled(client, False, tokens))
        self._charges.add(task)
        task.add_done_callback(self._charges.discard)

    def settle(self, client: str, request: bool, tokens: int) -> Settled:
        """Take one request, if one is wanted and all limits allow it, and so many tokens, as this process counts."""
        buckets = self._buckets(client)
        taken = request and all(bucket.level >= 1 for bucket in buckets.values())
        for counted, amount in (("requests", int(taken)), ("tokens", tokens)):
            if counted in buckets:
                buckets[counted].level -= amount
        requests_left, tokens_left = (buckets[each].level if each in buckets else 0.0 for each in _COUNTED)
        return taken, requests_left, tokens_left

    async def _settled(self, client: str, request: bool, tokens: int) -> Settled:
        if self.ledger is not None and self.clock() >= self._alone_until:
            try:
                return await self.ledger.settle(client, (self.requests, self.tokens), request, tokens)
            except LedgerDown as error:
                self._alone_until = self.clock() + _ALONE
                _log.warning("for %d seconds, requests are counted by each process for itself: %s", _ALONE, error)
        return self.settle(client, request, tokens)

    def _standings(self, taken: bool, *levels: float) -> list[Standing]:
        limits = zip(_COUNTED, (self.requests, self.tokens), levels, strict=True)
        return [_standing(counted, Bucket(limit, level, 0.0), taken) for counted, limit, level in limits if limit]

    def _buckets(self, client: str) -> dict[Counted, Bucket]:
        now = self.clock()
        buckets = self._clients.pop(client, None)
        if buckets is None:
            self._forget(now)
            limits: dict[Counted, int] = {"requests": self.requests, "tokens": self.tokens}
            buckets = {name: Bucket(limit, float(limit), now) for name, limit in limits.items() if limit}
        for bucket in buckets.values():
            bucket.fill(now)
        self._clients[client] = buckets
        return buckets

    def _forget(self, now: float) -> None:
        """Make room for one more. Two at a time, so that those that are full again go sooner than others come."""
        for _ in range(2):
            oldest = next(iter(self._clients), None)
            if oldest is None:
                return
            buckets = self._clients[oldest]
            for bucket in buckets.values():
                bucket.fill(now)
            full = all(bucket.level >= bucket.limit for bucket in buckets.values())
            if not full and len(self._clients) < self.most_clients:
                return
            del self._clients[oldest]


def _standing(counted: Counted, bucket: Bucket, taken: bool) -> Standing:
    wait = 0.0 if taken else bucket.until(1)
    remaining = max(0, math.floor(bucket.level))
    return Standing(counted, bucket.limit, remaining, bucket.until(bucket.limit), wait)


Prompt = str | tuple[int, ...]


@dataclass(slots=True)
class Quota:
    """The limits of one client, and what one of its requests takes of them."""

    rates: Rates
    client: str
    _prompts: dict[Prompt, int] = field(default_factory=dict, init=False)
    """The tokens that were charged for each prompt so far."""

    @staticmethod
    def current() -> Quota | None:
        return _current.get()

    async def ask(self) -> None:
        """Take one request. Raises `ApiError` if the client has to wait."""
        standings = await self.rates.ask(self.client)
        if any(each.wait for each in standings):
            raise _refusal(standings)
        _current.set(self)

    def scan(self, seconds: float) -> None:
        """Charge a recording by what was read of it, whether or not somebody speaks there."""
        self.rates.charge(self.client, math.ceil(seconds * _TOKENS_A_SECOND))

    async def count(
        self, generation: Generation, outputs: AsyncGenerator[Piece | Finish, None]
    ) -> AsyncGenerator[Piece | Finish, None]:
        """The same outputs. What they take is charged."""
        prompt, completion = generation.prompt, 0
        if prompt not in self._prompts:
            self._charge_prompt(prompt, token_count(prompt))
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if isinstance(output, Finish):
                        self._charge_prompt(prompt, output.prompt_tokens or token_count(prompt))
                        completion = output.completion_tokens or completion
                    else:
                        completion += len(output.ids) or token_count(output.text or "")
                    yield output
        finally:
            self.rates.charge(self.client, completion)

    def _charge_prompt(self, prompt: Prompt, tokens: int) -> None:
        """A prompt has so many tokens. What was charged for it before is settled."""
        self.rates.charge(self.client, tokens - self._prompts.get(prompt, 0))
        self._prompts[prompt] = tokens


_current: ContextVar[Quota | None] = ContextVar("quota", default=None)


def token_count(text: Prompt) -> int:
    """The tokens of a prompt or an output; an estimate where it is text."""
    return text_tokens(len(text)) if isinstance(text, str) else len(text)


def text_tokens(characters: int) -> int:
    """About how many tokens spell a text."""
    return -(-characters // _CHARACTERS)


# What a client is told, in the words of each vendor. OpenAI has `x-ratelimit-remaining-requests: 59` and times such as
# `6m0s`; Anthropic has `anthropic-ratelimit-requests-remaining: 59` and times of day. `Retry-After` is the same.


def openai_headers(standings: Sequence[Standing]) -> dict[str, str]:
    headers = {}
    for each in standings:
        headers[f"x-ratelimit-limit-{each.counted}"] = str(each.limit)
        headers[f"x-ratelimit-remaining-{each.counted}"] = str(each.remaining)
        headers[f"x-ratelimit-reset-{each.counted}"] = duration(each.reset)
    return headers


def anthropic_headers(standings: Sequence[Standing]) -> dict[str, str]:
    headers = {}
    now = datetime.now(UTC)
    for each in standings:
        prefix = f"anthropic-ratelimit-{each.counted}"
        headers[f"{prefix}-limit"] = str(each.limit)
        headers[f"{prefix}-remaining"] = str(each.remaining)
        reset = now + timedelta(seconds=each.reset)
        headers[f"{prefix}-reset"] = reset.isoformat(timespec="seconds").replace("+00:00", "Z")
    return headers


def duration(seconds: float) -> str:
    """As Go writes it, and OpenAI: `120ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{round(rest, 2):g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _refusal(standings: Sequence[Standing]) -> ApiError:
    """The error for a client that has to wait."""
    worst = max(standings, key=lambda each: each.wait)
    message = (
        f"Rate limit reached for {worst.counted}: {worst.limit} a minute for each client. "
        f"Please try again in {duration(worst.wait)}."
    )
    return ApiError(429, message, code="rate_limit_exceeded", kind=worst.counted, retry_after=worst.wait)


# As `Rates.settle` does it.
_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local kept = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local past = math.max(0, now - (kept[3] or now))
local levels, may, full = {}, true, 0
for i = 1, 2 do
  local limit = tonumber(ARGV[i])
  levels[i] = math.min(limit, (kept[i] or limit) + past * limit / 60)
  may = may and (limit == 0 or levels[i] >= 1)
end
local taken = ARGV[3] == '1' and may
local amounts = {taken and 1 or 0, tonumber(ARGV[4])}
for i = 1, 2 do
  local limit = tonumber(ARGV[i])
  if limit > 0 then
    levels[i] = levels[i] - amounts[i]
    full = math.max(full, (limit - levels[i]) * 60 / limit)
  end
end
redis.call('HSET', KEYS[1], 'requests', levels[1], 'tokens', levels[2], 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(full) + 60)
return {taken and 1 or 0, tostring(levels[1]), tostring(levels[2])}
"""


class RedisLedger:
    """A Redis, or what speaks its protocol, that several servers share."""

    def __init__(self, url: str) -> None:
        try:
            from redis import RedisError
            from redis.asyncio import from_url
        except ImportError as error:
            raise UnbraidError(f"--redis needs a package ({error}): pip install 'unbraid[redis]'") from error
        try:
            parts = urlsplit(url)
            database = "" if parts.scheme == "unix" else parts.path.strip("/")
            if database and not database.isdecimal():  # `from_url` would take the first
                raise ValueError(f"{database!r} is no number of a database")
            client = from_url(url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS)
        except ValueError as error:
            raise UnbraidError(f"--redis takes a URL such as redis://host:6379/0: {error}") from error
        self._script = client.register_script(_SCRIPT)
        self._errors = (RedisError, OSError)

    async def settle(self, client: str, limits: tuple[int, int], request: bool, tokens: int) -> Settled:
        try:
            taken, requests_left, tokens_left = await self._script(
                keys=[f"unbraid:rates:{client}"], args=[*limits, int(request), tokens]
            )
        except self._errors as error:
            raise LedgerDown(f"Redis: {error or type(error).__name__}") from error
        return bool(taken), float(requests_left), float(tokens_left)
