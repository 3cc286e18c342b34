"""Clients of a soak: one that compares all that it gets with the truth, and hostile ones beside it."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

from ..support.attacks import product, tool
from .truth import TOOL, question, truth

_PATH = "/v1/chat/completions"


async def _open(port: int, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request. With HTTP/1.0 the reply is the rest of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {_PATH} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def _post(port: int, body: bytes) -> tuple[int, bytes]:
    reader, writer = await _open(port, body)
    try:
        reply = await reader.read()
    finally:
        writer.close()
    head, _, rest = reply.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), rest


async def converse(port: int, number: int) -> str | None:
    """Have one conversation. What was wrong with the reply, None if nothing."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": question(number)}],
        "temperature": 0,
        "stream": True,
        "n": 2 if number % 10 == 3 else 1,
    }
    if number % 2:
        body["tools"] = [TOOL if number % 10 == 1 else {**TOOL, "function": {**TOOL["function"], "strict": False}}]  # type: ignore[dict-item]
    try:
        status, reply = await _post(port, json.dumps(body).encode())
    except (OSError, IndexError, ValueError) as error:
        return f"conversation {number}: {type(error).__name__} {error}"
    if status != 200:
        return f"conversation {number}: status {status}: {reply[:300]!r}"
    return _compared(number, body["n"], reply)


def _compared(number: int, choices: int, reply: bytes) -> str | None:
    expected = truth(number)
    lines = [line[6:] for line in reply.decode().split("\n") if line.startswith("data: ")]
    if not lines or lines.pop() != "[DONE]":
        return f"conversation {number}: the stream does not end: {reply[-300:]!r}"
    found: dict[int, dict[str, str]] = {}
    for line in lines:
        chunk = json.loads(line)
        if "error" in chunk:
            return f"conversation {number}: {chunk['error']}"
        for choice in chunk["choices"]:
            texts = found.setdefault(choice["index"], {"reasoning": "", "content": "", "arguments": "", "end": ""})
            delta = choice["delta"]
            texts["reasoning"] += delta.get("reasoning_content") or ""
            texts["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                texts["arguments"] += call["function"].get("arguments") or ""
            texts["end"] += choice.get("finish_reason") or ""
    called = expected.arguments is not None
    whole = {
        "reasoning": expected.reasoning,
        "content": expected.content,
        "arguments": expected.arguments or "",
        "end": "tool_calls" if called else "stop",
    }
    if found != dict.fromkeys(range(choices), whole):
        return f"conversation {number}: {found} is not {whole}"
    return None


async def be_hostile(port: int, chance: Random) -> str | None:
    """One thing that a client should not do. What was wrong with how the server took it, None if nothing."""
    kind = chance.choice(["no JSON", "wrong field", "bomb", "leaves", "leaves early", "half a request"])
    plain: dict[str, Any] = {"messages": [{"role": "user", "content": question(chance.randrange(10**6))}]}
    try:
        match kind:
            case "no JSON":
                status, _ = await _post(port, b'{"messages": [')
            case "wrong field":
                status, _ = await _post(port, json.dumps({**plain, "temperature": "hot"}).encode())
            case "bomb":
                body = {**plain, "temperature": 0, "tools": [tool(product())], "tool_choice": "required"}
                status, _ = await _post(port, json.dumps(body).encode())
                # 502: its output does not follow its own constraint here, so it cannot go on. It begins again each time
                # that its replica is killed, until it has moved too often.
                return None if status in (200, 400, 429, 502, 503) else f"{kind}: status {status}"
            case "half a request":
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
                writer.close()
                return None
            case _:
                reader, writer = await _open(port, json.dumps({**plain, "stream": True}).encode())
                if kind == "leaves":
                    await reader.read(1)
                writer.close()
                return None
    except OSError as error:
        return f"{kind}: {type(error).__name__} {error}"
    return None if status == 400 else f"{kind}: status {status}"
