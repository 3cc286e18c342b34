"""Where requests and tokens a minute are counted for several processes together.

The workers of one server ask their parent (`running.supervisor.Link`). Several servers ask a Redis (`RedisLedger`), in
one atomic step for each request; its clock is the one that counts. While it cannot be asked, each process counts for
itself (`Rates`): a server goes on without it.
"""

from __future__ import annotations

from typing import Protocol

from ...errors import UnbraidError

Settled = tuple[bool, float, float]
"""Whether a request was taken, and what is left in the buckets of requests and of tokens."""
_SECONDS = 1.0
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
            client = from_url(url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)
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
