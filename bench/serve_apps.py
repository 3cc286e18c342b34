"""What `serve.py` measures, each in a process of its own: our server, and a bare application that sends the same bytes.

    python bench/serve_apps.py unbraid content    # serves on a free port, which it prints

Both run on uvicorn, httptools and uvloop, with the settings of `unbraid serve`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.running_server import service_of
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.server.access.door import Access
from unbraid.server.app import create_app, write_error
from unbraid.server.running.run import spare_what_is_loaded
from unbraid.templates import built_in
from unbraid.tokens import vocabulary

PIECES = 256
PATH = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
}
BODY = {"messages": [{"role": "user", "content": "What is new in the world?"}], "tools": [TOOL], "stream": True}
WORDS = ("the", " weather", " in", " Shanghai", " tomorrow", " is", " mild", ",", " with", " rain", ".")


@dataclass(frozen=True)
class Case:
    """What the model writes."""

    name: str
    says: str
    pieces: Callable[[], list[str] | list[int]]
    ids: bool = False


def words(count: int = PIECES) -> list[str]:
    return [WORDS[at % len(WORDS)] for at in range(count)]


def call() -> list[str]:
    return ['<tool_call>\n{"name": "search", "arguments": {"query": "', *words(), '"}}\n</tool_call>']


def tokens() -> list[int]:
    from tests.support.real_tokenizers import encode, qwen3_huggingface

    return encode(qwen3_huggingface(), "".join(words()))


CASES = (
    Case("content", "plain content, as text", words),
    Case("call", "arguments of a call, as text", call),
    Case("ids", "plain content, as Qwen3's tokens", tokens, ids=True),
    Case("word", "a single word: a request's cost", lambda: words(1)),
)


def unbraid_app(case: Case) -> ASGIApp:
    """The whole server on the replay engine."""
    tokenizer = None
    if case.ids:
        from tests.support.real_tokenizers import qwen3_huggingface

        tokenizer = qwen3_huggingface()
    engine = ReplayEngine([_script(case)], repeat=True, vocabulary=None if tokenizer is None else vocabulary(tokenizer))
    return create_app(service_of(engine, "hermes", tokenizer=tokenizer, template=built_in("step-audio-2")))


def _script(case: Case) -> Script:
    pieces = [[piece] if isinstance(piece, int) else piece for piece in case.pieces()]
    return script(*pieces, chunks=10_000)


def bare_app(case: Case) -> ASGIApp:
    """Sends what our server sent, with a yield before each part of it, as the replay engine does."""
    start, *parts = asyncio.run(_sent(unbraid_app(case)))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(start)
        for part in parts[:-1]:
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": part["body"], "more_body": True})
        await send(parts[-1])

    return app


async def _sent(app: ASGIApp) -> list[Message]:
    """What an application answers."""
    sent: list[Message] = []
    asked = [{"type": "http.request", "body": json.dumps(BODY).encode(), "more_body": False}]

    async def receive() -> Message:
        if asked:
            return asked.pop()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    head: dict[str, Any] = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "headers": headers}
    await app(head, receive, send)
    assert sent[0]["status"] == 200, sent
    return sent


def with_usage(app: ASGIApp) -> ASGIApp:
    """Tells on `/usage` the seconds of CPU time that the process has used, and the most memory that it had."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/usage":
            used = resource.getrusage(resource.RUSAGE_SELF)
            told = {"cpu": used.ru_utime + used.ru_stime, "memory": _most_memory()}
            await JSONResponse(told)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return wrapped


def _most_memory() -> int:
    """In bytes. (`ru_maxrss` counts what the parent had when it started this process.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def serve(app: ASGIApp, **settings: Any) -> None:
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, backlog=4096, **settings)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    spare_what_is_loaded()
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


def main() -> None:
    which, name = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    if which == "unbraid":
        uvloop.run(serve(with_usage(unbraid_app(case)), **Access(write_error=write_error).uvicorn))
    else:
        uvloop.run(serve(with_usage(bare_app(case)), http="httptools"))


if __name__ == "__main__":
    main()
