"""What `serve.py` and `serve_peers.py` measure, each in a process of its own: our server, and a bare application that
sends the same bytes.

    python bench/serve_apps.py unbraid content             # serves on a free port, which it prints
    python bench/serve_apps.py bare content --granian
    python bench/serve_apps.py gateway content --upstream http://127.0.0.1:8000

They run on uvicorn, httptools and uvloop, with the settings of `unbraid serve`; or on Granian, if it is installed.
`upstream` is a server of a model: the bare application, and the same words as completions. `gateway` is ours before it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.running_server import service_of
from unbraid.engines.openai import OpenAIEngine
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.server.access.door import Access
from unbraid.server.app import create_app, write_error
from unbraid.server.running.run import spare_what_is_loaded
from unbraid.templates import built_in
from unbraid.tokens import vocabulary

PIECES = 256
PATH = "/v1/chat/completions"
MODEL = "bench"
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
    template = built_in("step-audio-2")
    return create_app(service_of(engine, "hermes", tokenizer=tokenizer, template=template, names=(MODEL,)))


def _script(case: Case) -> Script:
    pieces = [[piece] if isinstance(piece, int) else piece for piece in case.pieces()]
    return script(*pieces, chunks=10_000)


def bare_app(case: Case) -> ASGIApp:
    """Sends what our server sent, with a yield before each part of it, as the replay engine does."""
    with ThreadPoolExecutor(1) as thread:  # this one may run an event loop already
        start, *parts = thread.submit(asyncio.run, _sent(unbraid_app(case))).result()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(start)
        for part in parts[:-1]:
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": part["body"], "more_body": True})
        await send(parts[-1])

    return app


def upstream_app(case: Case) -> ASGIApp:
    """A server of a model: chats as `bare_app` sends them, and the same pieces as completions."""
    chat = bare_app(case)
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL}
    choices = [{"index": 0, "text": piece, "logprobs": None, "finish_reason": None} for piece in case.pieces()]
    usage = {"prompt_tokens": 10, "completion_tokens": len(choices), "total_tokens": 10 + len(choices)}
    chunks: list[dict[str, Any]] = [{**head, "choices": [choice]} for choice in choices]
    chunks.append({**head, "choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]})
    chunks.append({**head, "choices": [], "usage": usage})
    parts = [*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n"]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == PATH:
            await chat(scope, receive, send)
        elif scope["path"] == "/v1/completions":
            while (await receive()).get("more_body"):
                pass
            headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for part in parts:
                await asyncio.sleep(0)
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})(scope, receive, send)

    return app


def gateway_app(case: Case, upstream: str) -> ASGIApp:
    """Our whole server before a server of a model."""
    engine = OpenAIEngine(upstream, model=MODEL)
    return create_app(service_of(engine, "hermes", template=built_in("step-audio-2"), names=(MODEL,)))


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


def serve_on_granian(which: str, case: str) -> None:
    """The same on Granian, in a process that it starts. It calls `granian_app` there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ[_ON_GRANIAN] = f"{which} {case}"
    sys.path.insert(0, str(Path(__file__).parent))
    threading.Thread(target=_tell, args=(port,), daemon=True).start()
    target = "serve_apps:granian_app"
    settings = {"interface": "asgi", "loop": "uvloop", "factory": True, "backlog": 4096, "log_enabled": False}
    import_module("granian").Granian(target, port=port, **settings).serve()


_ON_GRANIAN = "UNBRAID_BENCH_ON_GRANIAN"


def granian_app() -> ASGIApp:
    which, name = os.environ[_ON_GRANIAN].split()
    return with_usage(_app(which, next(case for case in CASES if case.name == name)))


def _tell(port: int) -> None:
    """Print the port once something listens there."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    print(port, flush=True)


def _app(which: str, case: Case, upstream: str = "") -> ASGIApp:
    if which == "gateway":
        return gateway_app(case, upstream)
    return {"unbraid": unbraid_app, "bare": bare_app, "upstream": upstream_app}[which](case)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("which", choices=["unbraid", "bare", "upstream", "gateway"])
    arguments.add_argument("case", choices=[case.name for case in CASES])
    arguments.add_argument("--granian", action="store_true")
    arguments.add_argument("--upstream", default="", help="the address of the server that `gateway` asks")
    options = arguments.parse_args()
    if options.granian:
        serve_on_granian(options.which, options.case)
        return
    case = next(case for case in CASES if case.name == options.case)
    ours = options.which in ("unbraid", "gateway")
    settings = Access(write_error=write_error).uvicorn if ours else {"http": "httptools"}

    async def run() -> None:
        await serve(with_usage(_app(options.which, case, options.upstream)), **settings)

    uvloop.run(run())


if __name__ == "__main__":
    main()
