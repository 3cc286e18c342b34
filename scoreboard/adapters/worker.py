"""The loop that all adapters share: streams come in as JSON lines, what a peer made of them goes out.

It needs the standard library only. An adapter is an `Adapter`: `claims` says which formats the peer has a parser for,
`open` begins a stream, and `whole` reads an output that is not streamed. What a peer prints goes to standard error.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, Protocol

Job = dict[str, Any]
Fields = dict[str, Any]
Parsers = Mapping[str, tuple[str | None, str | None]]
"""The tool and reasoning parser of each format, by the peer's names."""


class PeerStream(Protocol):
    """One parser over one stream."""

    def feed(self, ids: list[int], text: str, last: bool) -> None: ...

    def reply(self) -> Fields:
        """Content, reasoning, calls as [name, arguments, complete or None], and how many deltas had arguments."""


class Adapter(Protocol):
    def claims(self) -> dict[str, bool]:
        """The formats that the peer has a parser for, and whether it takes their reasoning apart, too."""

    def open(self, job: Job) -> PeerStream: ...

    def whole(self, job: Job) -> Fields: ...


class Slow(Exception):
    """A stream took longer than the limit."""


class NotStreamed:
    """A peer that reads finished outputs only. It is never asked for a stream."""

    def open(self, job: Job) -> PeerStream:
        raise NotImplementedError(f"{type(self).__name__} does not stream")


def claims(parsers: Parsers) -> dict[str, bool]:
    return {format: reasoning is not None for format, (_, reasoning) in parsers.items()}


def fields(content: str | None, reasoning: str | None, calls: Iterable[tuple[str | None, Any, bool | None]]) -> Fields:
    """A reply that was not streamed. Arguments may be an object or text."""
    triples = [
        [name or "", arguments if isinstance(arguments, str) else json.dumps(arguments), complete]
        for name, arguments, complete in calls
    ]
    return {"content": content, "reasoning": reasoning, "calls": triples, "argument_deltas": 0}


def own_ids(job: Job, specials: Mapping[str, int], encode: Callable[[str], list[int]]) -> Iterable[list[int]]:
    """The ids of each token of a stream in a peer's own vocabulary: a marker is one token there, too."""
    for text in job["texts"]:
        yield [specials[text]] if text in specials else encode(text)


def with_tokens(create: Callable[[], Any], add: Callable[[str], object]) -> Any:
    """What `create` makes, once the vocabulary has the tokens that it asks for: those of prompts are not in it."""
    for _ in range(100):
        try:
            return create()
        except (AssertionError, ValueError) as error:
            match = re.search(r"token(?: for)? '(\S+?)'(?: not|,)|token for (\S+?), got", str(error))
            if match is None:
                raise
            add(match[1] or match[2])
    raise RuntimeError("the vocabulary lacks too many tokens")


def post(url: str, body: Mapping[str, Any]) -> bytes:
    """What a peer's server answers; an error of its own is raised with what it says."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: bytes = response.read()
            return answer
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{error.code}: {error.read()[:200].decode(errors='replace')}") from None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Folded:
    """A client that puts deltas together: what the streams of peers are made of."""

    def __init__(self) -> None:
        self.content = self.reasoning = ""
        self.calls: dict[int, list[Any]] = {}
        self.argument_deltas = 0

    def call(self, index: int, name: str | None, arguments: str | None) -> None:
        call = self.calls.setdefault(index, ["", "", None])
        call[0] += name or ""
        call[1] += arguments or ""
        self.argument_deltas += bool(arguments)

    def reply(self) -> Fields:
        calls = [self.calls[index] for index in sorted(self.calls)]
        texts = {"content": self.content, "reasoning": self.reasoning}
        return {**texts, "calls": calls, "argument_deltas": self.argument_deltas}


def serve(adapter: Adapter, *packages: str) -> None:
    """Answer jobs until there are no more. The versions of the packages are told first."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGPROF, _too_slow)
    gc.collect()
    gc.freeze()
    versions = {"python": sys.version.split()[0], **{name: importlib.metadata.version(name) for name in packages}}
    _say(out, {"versions": versions, "claims": adapter.claims()})
    for line in sys.stdin:
        job = json.loads(line)
        replies = {cut: one(adapter, job, sizes) for cut, sizes in job["cuts"].items()}
        _say(out, {"name": job["name"], "replies": replies})


def _say(out: Any, fields: Fields) -> None:
    out.write(json.dumps(fields) + "\n")
    out.flush()


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow


def one(adapter: Adapter, job: Job, sizes: list[int] | None) -> Fields:
    limit = job.get("limit_s", 20)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        return adapter.whole(job) if sizes is None else _streamed(adapter, job, sizes)
    except Slow:
        return {"error": f"not done after {limit} s"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _streamed(adapter: Adapter, job: Job, sizes: list[int]) -> Fields:
    ids, texts = job["ids"], job["texts"]
    deltas, at = [], 0
    for size in sizes:
        deltas.append((ids[at : at + size], "".join(texts[at : at + size])))
        at += size
    stream = adapter.open(job)
    feed, last, stop = stream.feed, len(deltas) - 1, job.get("stop_s")
    # The processor time of this thread: other processes must not count.
    began, fed = time.thread_time(), 0
    for number, (delta, text) in enumerate(deltas):
        feed(delta, text, number == last)
        fed += 1
        if stop and not fed % 64 and time.thread_time() - began > stop:
            break
    seconds = time.thread_time() - began
    return {**stream.reply(), "deltas": fed, "us": round(1e6 * seconds / max(1, fed), 2)}
