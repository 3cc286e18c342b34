"""Servers that answer as SGLang 0.5.23 and vLLM 0.32 do, without a model, and that fail on demand.

What they say was read off the engines' sources:

SGLang: `entrypoints/http_server.py` (`/generate`, `/abort_request`, `/health`, `/v1/models`; errors as `data: {"error":
…}` in a stream that began with status 200), `managers/tokenizer_manager.py` (`_handle_batch_output`: `text`,
`output_ids` and `meta_info`, of all tokens so far or, with `--incremental-streaming-output`, of the new ones;
`_handle_abort_req`: the last id once more), `managers/schedule_batch.py` (`finish_reason`),
`managers/scheduler_components/output_streamer.py` (tokens through the stop, however long its text),
`sampling/sampling_params.py` (the names).

vLLM: `entrypoints/openai/completion/{protocol,serving}.py` (`token_ids` of the new tokens in each choice,
`prompt_token_ids` in the first chunk, `stop_reason`, a last chunk with `usage` and no choices, errors as `data:
{"error": …}`), `v1/engine/detokenizer.py` (text that may be a stop text comes late, ids never do).
"""

from __future__ import annotations

import asyncio
import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from .byte_vocabulary import END, VOCABULARY
from .waiting import PATIENCE, until


@dataclass
class Fault:
    """What goes wrong, after so many events."""

    kind: Literal["status", "drop", "cut", "garbage", "silent", "trickle", "error"]
    after: int = 0
    status: int = 500
    message: str = "it broke"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Gone(Exception):
    """The client has closed the connection."""


class FakeServer(ABC):
    """HTTP/1.1 on a free port. `answer` says what is sent for a request to generate."""

    generates = "/generate"

    def __init__(
        self,
        output: Sequence[int] = (),
        *,
        fault: Fault | None = None,
        pace: float = 0.0,
        together: int = 0,
        port: int = 0,
    ) -> None:
        self.output = list(output)
        self._port = port
        self.fault = fault
        self.pace = pace
        self.together = together
        """How many requests must run at once before any of them is answered."""
        self.asked: list[Asked] = []
        self.connections = 0
        self.gone = 0
        """Requests whose client left before the end."""
        self.running = 0
        self.most_running = 0
        self.healthy = True
        self.metrics: str | None = None
        """What it says at `/metrics`, if it shows any."""
        self.drops_kept = False
        """Close a connection when a second request comes on it."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def generated(self) -> list[Any]:
        """The bodies of all requests to generate."""
        return [asked.body for asked in self.asked if asked.path == self.generates]

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @abstractmethod
    def events(self, body: Any) -> Iterator[Any]:
        """The messages that answer `body`."""

    def other(self, asked: Asked) -> tuple[int, Any]:
        """Status and JSON for other paths."""
        if asked.path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "fake", "object": "model", "max_model_len": 1000}]}
        if asked.path == "/health":
            return (200 if self.healthy else 503), None
        if asked.path == "/metrics" and self.metrics is not None:
            return 200, self.metrics.encode()
        return 404, {"detail": "Not Found"}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, backlog=1024)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(1)
            while first:
                asked = await _read_request(first, reader)
                self.asked.append(asked)
                ahead = asyncio.ensure_future(reader.read(1))  # nothing comes before the answer is over, but the end
                try:
                    await self._answer(asked, writer, ahead)
                except (Gone, ConnectionError):
                    self.gone += 1
                    return
                finally:
                    ahead.add_done_callback(lambda done: done.cancelled() or done.exception())
                if writer.is_closing():
                    return
                first = await ahead
                if self.drops_kept:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter, ahead: asyncio.Future[bytes]) -> None:
        if asked.path != self.generates:
            _send_json(writer, *self.other(asked))
            return
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await until(lambda: self.most_running >= self.together)
            await self._stream(asked.body, writer, ahead)
        finally:
            self.running -= 1

    async def _stream(self, body: Any, writer: asyncio.StreamWriter, ahead: asyncio.Future[bytes]) -> None:
        fault = self.fault
        if fault is not None and fault.kind == "status":
            error = {"message": fault.message, "type": "BadRequestError", "code": fault.status}
            _send_json(writer, fault.status, {"error": error}, fault.headers)
            return
        if fault is not None and fault.kind == "drop":  # without an answer
            writer.transport.abort()
            return
        try:
            messages = list(self.events(body))
        except ValueError as error:
            _send_json(writer, 400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at, message in enumerate(messages):
            if fault is not None and at == fault.after and await _fail(fault, writer, ahead):
                return
            await _wait(self.pace, ahead)
            _send_chunk(writer, f"data: {json.dumps(message)}\n\n".encode())
            await writer.drain()
        _send_chunk(writer, b"data: [DONE]\n\n")
        _send_chunk(writer, b"")


async def _read_request(first: bytes, reader: asyncio.StreamReader) -> Asked:
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
    line, *rest = head.strip().split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    data = await reader.readexactly(int(headers.get("content-length", 0)))
    kind = headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        return Asked(method, path, headers, _form(data, kind.partition("boundary=")[2].encode()))
    return Asked(method, path, headers, json.loads(data) if data else None)


def _form(data: bytes, boundary: bytes) -> dict[str, Any]:
    """The fields of a form, as text; a file as its bytes."""
    found: dict[str, Any] = {}
    for part in data.split(b"--" + boundary)[1:-1]:
        head, _, value = part.removesuffix(b"\r\n").partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode()
        found[name] = value if b"filename=" in head else value.decode()
    return found


def _send_json(writer: asyncio.StreamWriter, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
    data = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
    more = "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items())
    writer.write(f"HTTP/1.1 {status} x\r\n{more}Content-Length: {len(data)}\r\n\r\n".encode() + data)


def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _wait(seconds: float, ahead: asyncio.Future[bytes]) -> None:
    """Let time pass, unless the client goes."""
    await asyncio.wait([ahead], timeout=seconds)
    if ahead.done() and (ahead.exception() or not ahead.result()):
        raise Gone


async def _fail(fault: Fault, writer: asyncio.StreamWriter, ahead: asyncio.Future[bytes]) -> bool:
    """Do what is to go wrong in a stream, and say whether that is all."""
    await writer.drain()
    match fault.kind:
        case "cut":
            while writer.transport.get_write_buffer_size():  # what was sent shall arrive
                await asyncio.sleep(0)
            writer.transport.abort()
            return True
        case "silent":
            await _wait(2 * PATIENCE, ahead)
        case "trickle":
            while True:  # signs of life, and no output
                _send_chunk(writer, b": still here\n\n")
                await _wait(0.02, ahead)
        case "garbage":
            _send_chunk(writer, b'data: {"choices": [}\n\n')
        case "error":
            error = {"message": fault.message, "type": "InternalServerError", "code": fault.status}
            _send_chunk(writer, f"data: {json.dumps({'error': error})}\n\ndata: [DONE]\n\n".encode())
            _send_chunk(writer, b"")
            return True
    return False


@dataclass
class Run:
    """What a model does with a request: its tokens, the text that has been shown after each, and how it ends."""

    ids: list[int]
    shown: list[str]
    reason: Literal["stop", "length"]
    matched: str | int | None


def left(output: Sequence[int], prompt: Sequence[int]) -> Sequence[int]:
    """What a model still writes after a prompt that ends with the beginning of its output."""
    sizes = range(min(len(output), len(prompt)), 0, -1)
    return output[next((size for size in sizes if list(prompt[-size:]) == list(output[:size])), 0) :]


def run(output: Sequence[int], stop: Sequence[str], stop_ids: Sequence[int], limit: int | None) -> Run:
    """Write `output` until something ends it. Text lags behind by what may be a stop text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = ""
    ids: list[int] = []
    shown: list[str] = []
    late = max(map(len, stop), default=1) - 1
    for token in output:
        ids.append(token)
        if token == END or token in stop_ids:
            return Run(ids, [*shown, text], "stop", token)
        text += decoder.decode(VOCABULARY.token_bytes(token) or b"")
        found = next((each for each in stop if each in text), None)
        if found is not None:
            return Run(ids, [*shown, text[: text.index(found)]], "stop", found)
        if len(ids) == limit:
            return Run(ids, [*shown, text], "length", None)
        shown.append(text[: max(0, len(text) - late)])
    raise AssertionError("the output has to end")


SGLANG_SAMPLING = frozenset(
    [
        "max_new_tokens",
        "stop",
        "stop_token_ids",
        "stop_regex",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "min_new_tokens",
        "n",
        "json_schema",
        "regex",
        "ebnf",
        "structural_tag",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "no_stop_trim",
        "stream_interval",
        "logit_bias",
        "sampling_seed",
        "custom_params",
    ]
)


class FakeSGLang(FakeServer):
    """`/generate` of SGLang, with or without `--incremental-streaming-output`."""

    generates = "/generate"

    def __init__(self, output: Sequence[int] = (), *, incremental: bool = True, **options: Any) -> None:
        super().__init__(output, **options)
        self.incremental = incremental
        self.aborted: list[str] = []
        self.abort_after: int | None = None
        """Say after so many tokens that the request was aborted."""

    def other(self, asked: Asked) -> tuple[int, Any]:
        if asked.path == "/abort_request":
            self.aborted.append(asked.body["rid"])
            return 200, None
        return super().other(asked)

    def events(self, body: Any) -> Iterator[Any]:
        sampling = body["sampling_params"]
        unknown = set(sampling) - SGLANG_SAMPLING
        if unknown:
            raise ValueError(f"unexpected keyword arguments {unknown}")
        prompt = body.get("input_ids") or body["text"].encode()
        if len(prompt) >= 1000:
            message = f"The input ({len(prompt)} tokens) is longer than the model's context length (1000 tokens)."
            yield {"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}}
            return
        done = run(left(self.output, prompt), sampling["stop"], sampling["stop_token_ids"], sampling["max_new_tokens"])
        for at in range(1, len(done.ids) + 1):
            if at - 1 == self.abort_after:
                yield self._aborted(body, done.ids[: at - 1])
                return
            yield self._message(body, done, at)

    def _message(self, body: Any, done: Run, at: int) -> dict[str, Any]:
        last = at == len(done.ids)
        before = at - 1 if self.incremental else 0
        ended: dict[str, Any] = {"type": done.reason, "matched": done.matched}
        if done.reason == "length":
            ended = {"type": "length", "length": at}
        meta: dict[str, Any] = {
            "id": body["rid"],
            "finish_reason": ended if last else None,
            "prompt_tokens": len(body.get("input_ids") or ()),
            "weight_version": "default",
            "reasoning_tokens": 0,
            "completion_tokens": at,
            "cached_tokens": 2,
        }
        if body.get("return_logprob"):
            text = body["return_text_in_logprobs"]
            meta["output_token_logprobs"] = [_entry(token, text) for token in done.ids[before:at]]
            if body["top_logprobs_num"]:
                top = range(65, 65 + body["top_logprobs_num"])
                meta["output_top_logprobs"] = [[_entry(token, text) for token in top]] * (at - before)
        shown = done.shown[at - 1]
        text = shown[len(done.shown[at - 2]) :] if self.incremental and at > 1 else shown
        return {"text": text, "output_ids": done.ids[before:at], "meta_info": meta}

    def _aborted(self, body: Any, ids: list[int]) -> dict[str, Any]:
        meta = {
            "id": body["rid"],
            "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
            "weight_version": "default",
            "e2e_latency": 0.1,
            "completion_tokens": len(ids),
        }
        return {"text": "", "output_ids": ids[-1:] if self.incremental else ids, "meta_info": meta}


def _entry(token: int, text: bool) -> list[Any]:
    return [-token / 100, token, (VOCABULARY.token_bytes(token) or b"").decode("latin-1") if text else None]


class FakeVLLM(FakeServer):
    """`/v1/completions` of vLLM."""

    generates = "/v1/completions"

    def events(self, body: Any) -> Iterator[Any]:
        prompt = body["prompt"]
        if len(prompt) >= 1000:
            raise ValueError(
                f"This model's maximum context length is 1000 tokens. However, your prompt contains {len(prompt)} "
                "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of "
                "the input prompt."
            )
        if body["model"] != "fake":
            raise ValueError(f"The model `{body['model']}` does not exist.")
        output = left(self.output, prompt)
        done = run(output, body.get("stop") or (), body.get("stop_token_ids") or (), body.get("max_tokens", 16))
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "fake"}
        for at, token in enumerate(done.ids):
            yield {**head, "choices": [self._choice(body, done, at, token)]}
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": len(prompt), "total_tokens": len(prompt) + len(done.ids)}
            usage["completion_tokens"] = len(done.ids)
            yield {**head, "choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 2}}}

    def _choice(self, body: Any, done: Run, at: int, token: int) -> dict[str, Any]:
        last = at == len(done.ids) - 1
        text = done.shown[at][len(done.shown[at - 1]) if at else 0 :]
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": None}
        if last:
            # An end of the model's own is no reason to name.
            choice |= {"finish_reason": done.reason, "stop_reason": None if done.matched == END else done.matched}
        if body.get("return_token_ids"):
            choice |= {"token_ids": [token], "prompt_token_ids": body["prompt"] if at == 0 else None}
        if body.get("logprobs") is not None:
            as_ids = bool(body.get("return_tokens_as_token_ids"))
            ranked = [token, *range(65, 65 + body["logprobs"])]
            choice["logprobs"] = {
                "text_offset": [0],
                "tokens": [_spelled(token, as_ids)],
                "token_logprobs": [-token / 100],
                "top_logprobs": [{_spelled(each, as_ids): -each / 100 for each in ranked}],
            }
        return choice


def _spelled(token: int, as_id: bool) -> str:
    return f"token_id:{token}" if as_id else (VOCABULARY.token_bytes(token) or b"").decode("latin-1")
