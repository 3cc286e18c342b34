"""Requests that are cheap to send and dear to work out, and how long others wait while they are worked out.

`tests/server/test_attacks.py` and `bench/attacks.py` send them to a server and measure, with a plain chat and
`/health`, what the others notice.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

import httpx

Body = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello!"}]
Attack = Callable[[], tuple[str, Body]]
_numbers = count()


def product(factors: int = 10, alternatives: int = 3, kind: str = "anyOf") -> Body:
    """A schema of 3 kB: `allOf` of `anyOf`, which multiply. No two are the same, so that nothing is remembered."""
    number = next(_numbers)
    return {
        "type": "object",
        "properties": {
            "x": {
                "allOf": [
                    {
                        kind: [
                            {
                                "type": "object",
                                "properties": {
                                    f"p{at}_{each}_{number}": {"type": "string", "pattern": f"^[a-z{each}]+x{at}$"}
                                },
                                "required": [f"p{at}_{each}_{number}"],
                            }
                            for each in range(alternatives)
                        ]
                    }
                    for at in range(factors)
                ]
            }
        },
    }


def tool(schema: Body, **more: Any) -> Body:
    return {"type": "function", "function": {"name": "f", "parameters": schema, **more}}


def schemas() -> tuple[str, Body]:
    return "/v1/chat/completions", {"messages": HELLO, "tools": [tool(product())], "tool_choice": "required"}


def answers() -> tuple[str, Body]:
    schema = {"name": "x", "schema": product(), "strict": False}
    return "/v1/completions", {"prompt": "x", "response_format": {"type": "json_schema", "json_schema": schema}}


def patterns() -> tuple[str, Body]:
    pattern = f"^({'|'.join(f'(a{{1,40}}b{at}?){{1,40}}' for at in range(9))}){next(_numbers)}$"
    properties = {f"p{at}": {"type": "string", "pattern": pattern} for at in range(20)}
    asked = {"type": "object", "properties": properties}
    return "/v1/chat/completions", {"messages": HELLO, "tools": [tool(asked)], "tool_choice": "required"}


def grammars() -> tuple[str, Body]:
    number = next(_numbers)
    rules = [f'r{at}: r{at + 1} "a{number}" r{at + 1} | r{at + 1}~1..30' for at in range(300)]
    definition = "\n".join(["start: r0", *rules, 'r300: "x"'])
    format = {"type": "grammar", "grammar": {"syntax": "lark", "definition": definition}}
    custom = {"type": "custom", "custom": {"name": "f", "format": format}}
    return "/v1/chat/completions", {"messages": HELLO, "tools": [custom], "tool_choice": "required"}


def parsing(megabytes: float = 4.4) -> tuple[str, Body]:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": [1, 2, {"b": "c"}]}}\n</tool_call>\n'
    return "/v1/parse", {"text": call * int(megabytes * 1e6 / len(call)), "unknown_tools": "emit"}


def tokens(megabytes: float = 8.0) -> tuple[str, Body]:
    return "/v1/tokenize", {"prompt": "ab c1! " * int(megabytes * 1e6 / 7)}


def turns(count: int = 5_000) -> tuple[str, Body]:
    messages = [{"role": role, "content": "Hm, " * 20} for role in ("user", "assistant") * (count // 2)]
    return "/v1/chat/completions", {"messages": [*messages, *HELLO]}


def objects(megabytes: float = 20.0) -> tuple[str, Body]:
    """A large body whose objects are small, which would be slow to decode."""
    return "/v1/chat/completions", {"messages": HELLO, "documents": [{"a": []}] * int(megabytes * 1e6 / 10)}


ATTACKS: Mapping[str, Attack] = {
    "schemas of 3 kB": schemas,
    "answers of 3 kB": answers,
    "patterns": patterns,
    "grammars": grammars,
    "parsing 4.4 MB": parsing,
    "tokenizing 8 MB": tokens,
    "5,000 turns": turns,
    "bodies of 20 MB": objects,
}


@dataclass
class Waits:
    """How long the others waited, in seconds."""

    chats: list[float] = field(default_factory=list)
    """Until the first token of a plain chat."""
    health: list[float] = field(default_factory=list)

    @property
    def chat(self) -> float:
        return median(self.chats)


async def first_token(client: httpx.AsyncClient) -> float:
    begun = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json={"messages": HELLO, "stream": True}) as response:
        assert response.status_code == 200, await response.aread()
        async for _ in response.aiter_bytes():
            return time.perf_counter() - begun
    raise AssertionError("the stream is empty")


async def watch(client: httpx.AsyncClient, until: Callable[[], bool], least: int = 10) -> Waits:
    """Chat and ask for the health, again and again, until something is the case and there are enough."""
    waits = Waits()
    while not until() or len(waits.chats) < least:
        waits.chats.append(await first_token(client))
        begun = time.perf_counter()
        response = await client.get("/health")
        assert response.status_code == 200
        waits.health.append(time.perf_counter() - begun)
        await asyncio.sleep(0.02)
    return waits


async def attacked(
    url: str,
    attack: Attack,
    requests: int,
    *,
    leave_after: float | None = None,
    least: int = 10,
) -> tuple[Waits, list[int], float]:
    """What others wait while so many requests are worked out; how these were answered, and how long that took.
    `leave_after`: the attackers leave after so many seconds, which counts as the status 0."""
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as attackers,
        httpx.AsyncClient(base_url=url, timeout=300) as others,
    ):
        await first_token(others)
        bodies = [(path, json.dumps(body).encode()) for path, body in (attack() for _ in range(requests))]

        async def one(path: str, body: bytes) -> int:
            headers = {"content-type": "application/json"}
            asked: Awaitable[httpx.Response] = attackers.post(path, content=body, headers=headers)
            try:
                return (await asyncio.wait_for(asked, leave_after)).status_code
            except TimeoutError:
                return 0

        begun = time.perf_counter()
        running = asyncio.ensure_future(asyncio.gather(*(one(*each) for each in bodies)))
        waits = await watch(others, running.done, least)
        statuses = await running
        return waits, statuses, time.perf_counter() - begun


async def flooded(
    url: str, name: str, connections: int = 4, seconds: float = 4.0, least: int = 10
) -> tuple[Waits, dict[str, int]]:
    """What others wait while a flood goes on (`flood`), and how often that was answered with which status."""
    port = str(httpx.URL(url).port)
    command = [sys.executable, "-m", "tests.support.flood", port, name, str(connections), str(seconds)]
    flood = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert flood.stdout is not None
    assert await flood.stdout.readline()
    ended = asyncio.ensure_future(flood.stdout.read())
    async with httpx.AsyncClient(base_url=url, timeout=300) as others:
        waits = await watch(others, ended.done, least)
    statuses: dict[str, int] = json.loads(await ended)
    await flood.wait()
    return waits, statuses


async def quiet(url: str, least: int = 20) -> Waits:
    async with httpx.AsyncClient(base_url=url, timeout=300) as others:
        await first_token(others)
        return await watch(others, lambda: True, least)
