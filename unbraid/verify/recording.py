"""A proxy that records a server's traffic; the checks over what it recorded, or over the same requests asked again.

A recording is one JSON object a line: `path`, `request`, `status`, `reply`, and `left` where the client did not wait
for all of it. Headers are not recorded: keys stand there.
With `ids` the proxy asks chat for the ids of what the model wrote, which say later whose a fault is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import httpx

from ..errors import UnbraidError
from .attribution import Witness
from .checks import check_exchange
from .dialects import DIALECTS, VerifyDialect
from .exchange import ProbeRequest, VerifyExchange, json_of
from .running import Blamed, ProbeResult, blamed
from .server import VerifiedServer, read_reply

_HOP = {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"}
"""Headers that belong to one connection."""


class RecordingProxy:
    """Hands every request on to a server, and writes down what it was asked and what it said."""

    def __init__(
        self, upstream: str, file: IO[str], *, host: str = "127.0.0.1", port: int = 0, ids: bool = False
    ) -> None:
        self._upstream = upstream.rstrip("/").removesuffix("/v1")
        self._file = file
        self._ids = ids
        self._lock = threading.Lock()
        self._client = httpx.Client(timeout=None, trust_env=False)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.forward(self)

            def do_POST(self) -> None:
                proxy.forward(self)

            def do_DELETE(self) -> None:
                proxy.forward(self)

            def do_OPTIONS(self) -> None:
                proxy.forward(self)

            def log_message(self, format: str, *args: Any) -> None:
                """The recording is the log."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/v1"

    def serve(self) -> None:
        """Until `close`."""
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def forward(self, handler: BaseHTTPRequestHandler) -> None:
        """One request, handed on piece by piece."""
        body = self._asking(handler.path, handler.rfile.read(int(handler.headers.get("content-length") or 0)))
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP}
        headers["accept-encoding"] = "identity"
        url = f"{self._upstream}{handler.path}"
        pieces, left = list[bytes](), False
        try:
            with self._client.stream(handler.command, url, content=body, headers=headers) as response:
                status = response.status_code
                handler.send_response(status)
                for name, value in response.headers.items():
                    if name.lower() not in _HOP:
                        handler.send_header(name, value)
                handler.send_header("Transfer-Encoding", "chunked")
                handler.end_headers()
                for piece in response.iter_raw():
                    pieces.append(piece)
                    handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                handler.wfile.write(b"0\r\n\r\n")
        except httpx.HTTPError as error:
            status = 502
            handler.close_connection = True  # so that the client sees, too, that it broke off
            if not pieces:
                handler.send_error(502, f"{self._upstream} cannot be reached: {error}")
        except OSError:
            handler.close_connection = left = True  # what came until the client left is recorded
        self._write(handler.path, body, status, b"".join(pieces), left)

    def _asking(self, path: str, body: bytes) -> bytes:
        """The request, asking for ids if these are wanted and its API has them."""
        if not self._ids or _dialect(path) is not DIALECTS["chat"]:
            return body
        try:
            return json.dumps({**json_of(body), "return_token_ids": True}).encode()
        except (ValueError, TypeError):  # the server says what is wrong with it
            return body

    def _write(self, path: str, body: bytes, status: int, reply: bytes, left: bool) -> None:
        try:
            request = json_of(body)
        except ValueError:
            return
        if not isinstance(request, Mapping):
            return
        row = {"path": path, "request": request, "status": status, "reply": reply.decode("utf-8", "replace")}
        row |= {"left": True} if left else {}
        with self._lock:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()


def read_exchanges(path: Path, server: VerifiedServer | None = None) -> Iterator[VerifyExchange]:
    """The exchanges of a recording whose API is known, without replies that the client did not wait for. With a server,
    all requests are asked again, of its model."""
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json_of(text)
            dialect = _dialect(row["path"])
            if dialect is not None and (server is not None or not row.get("left")):
                yield _exchange(row if server is None else _asked_again(row, dialect, server), dialect)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UnbraidError(f"{path}, line {number}: no recorded exchange ({error!r})") from error


def _dialect(path: str) -> VerifyDialect | None:
    return next((each for each in DIALECTS.values() if path.split("?")[0].endswith(each.path)), None)


def _asked_again(row: Mapping[str, Any], dialect: VerifyDialect, server: VerifiedServer) -> Mapping[str, Any]:
    body = {**row["request"], "model": server.model}
    if 400 <= row["status"] < 500:  # a bad request shows nothing of the fields that a server takes
        status, raw = server.send("POST", dialect.path, body)
    else:
        body, status, raw = server.post(dialect.path, body)
    return {**row, "request": body, "status": status, "reply": raw}


def _exchange(row: Mapping[str, Any], dialect: VerifyDialect) -> VerifyExchange:
    body = row["request"]
    streamed = bool(body.get("stream"))
    return VerifyExchange(
        request=ProbeRequest(text="", tools=tuple(_tools(body.get("tools"))), choice=_choice(body)),
        body=body,
        streamed=streamed,
        raw=row["reply"],
        reply=read_reply(dialect, row["status"], row["reply"], streamed),
        counted=not streamed or dialect is not DIALECTS["chat"] or _asks_for_usage(body),
    )


def _asks_for_usage(body: Mapping[str, Any]) -> bool:
    return bool(_object(body.get("stream_options")).get("include_usage"))


def _object(value: object) -> Mapping[str, Any]:
    """What a client sent for an object; some send anything."""
    return value if isinstance(value, Mapping) else {}


def _tools(tools: object) -> Iterator[Mapping[str, Any]]:
    """Functions of any dialect."""
    for tool in map(_object, tools if isinstance(tools, list) else ()):
        function = _object(tool.get("function") or tool.get("custom") or tool)
        if "name" in function:
            parameters = function.get("parameters") or function.get("input_schema")
            yield {"name": function["name"], "parameters": parameters, "strict": bool(function.get("strict"))}


def _choice(body: Mapping[str, Any]) -> str:
    """auto, none, required or the name of a tool. What only allows some tools counts as auto."""
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, str):
        return choice
    choice = _object(choice)
    name = choice.get("name") or _object(choice.get("function") or choice.get("custom")).get("name")
    return str(name or {"any": "required", "none": "none"}.get(choice.get("type", ""), "auto"))


def check_recording(
    path: Path,
    witness: Witness,
    server: VerifiedServer | None = None,
    tell: Callable[[str], None] = lambda progress: None,
) -> ProbeResult:
    """The checks of any reply, over recorded traffic, or over what a server says to the same requests."""
    count, called, wrong = 0, 0, list[Blamed]()
    for exchange in read_exchanges(path, server):
        count += 1
        tell(f"{path.name}, request {count}")
        called += bool(exchange.reply.calls)
        faults = [(fault, exchange) for fault in check_exchange(exchange)]
        wrong += blamed(faults, [exchange], witness, None)
    shows = f"the requests of {path.name}, calls in {called} of {count} replies"
    return ProbeResult("recording", shows, count, count, tuple(wrong), count)
