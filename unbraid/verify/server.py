"""One server over HTTP: a request goes out, a reply or a stream comes in, and every byte is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx

from ..errors import UnbraidError
from .dialects import DIALECTS, ServerEvent, VerifyDialect
from .exchange import ObservedReply, ProbeRequest, VerifyExchange, json_of

_VERSION = {"anthropic-version": "2023-06-01"}


class VerifiedServer:
    """A server that is verified.

    url: up to `/v1`, which is added where it is missing.
    model: the name of the model; the first one that the server lists by default.
    max_tokens: for requests that do not say how many; reasoning needs its share.
    extra: fields for every request, such as the temperature.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        dialect: str = "chat",
        key: str = "",
        timeout: float = 120,
        max_tokens: int = 512,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if dialect not in DIALECTS:
            raise UnbraidError(f"there is no API {dialect!r}: choose {', '.join(DIALECTS)}")
        self.dialect: VerifyDialect = DIALECTS[dialect]
        root = url.rstrip("/")
        self.url = root if root.endswith("/v1") else f"{root}/v1"
        headers = {**_VERSION, **({"Authorization": f"Bearer {key}", "x-api-key": key} if key else {})}
        try:
            # A server may close a kept connection just when it is used; that would look like its fault.
            limits = httpx.Limits(max_keepalive_connections=0)
            self._client = httpx.Client(headers=headers, timeout=timeout, limits=limits, trust_env=False)
        except httpx.InvalidURL as error:
            raise UnbraidError(f"{url} is no address: {error}") from error
        self._extra = dict(extra or {})
        self._max_tokens = max_tokens
        self.shows_ids = False
        """Whether the server tells the ids of what the model wrote."""
        self.model = model or self._first_model()

    def _first_model(self) -> str:
        status, raw = self.send("GET", "/models", None)
        try:
            return str(json_of(raw)["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise UnbraidError(
                f"{self.url}/models answers {status} and names no model: give --model NAME, and --key if it needs one"
            ) from error

    def send(self, method: str, path: str, body: object) -> tuple[int, str]:
        """Status and text of a reply, whatever the request is. Status 0: none came, and the text says why."""
        try:
            content = body if isinstance(body, str | None) else json.dumps(body)
            headers = {} if content is None else {"Content-Type": "application/json"}
            response = self._client.request(method, f"{self.url}{path}", content=content, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UnbraidError(f"{self.url} cannot be reached: {error}") from error
        except httpx.HTTPError as error:
            return 0, f"no whole reply: {type(error).__name__}: {error}"
        return response.status_code, response.text

    def ask(self, request: ProbeRequest, *, stream: bool) -> VerifyExchange:
        """Send a request and read its reply as a client does."""
        request = replace(request, max_tokens=request.max_tokens or self._max_tokens)
        body = {**self.dialect.body(request, self.model, stream=stream), **self._extra, **(request.raw or {})}
        if self.shows_ids:
            body["return_token_ids"] = True
        status, raw = self.send("POST", self.dialect.path, body)
        exchange = VerifyExchange(
            request=request, body=body, streamed=stream, raw=raw, reply=read_reply(self.dialect, status, raw, stream)
        )
        return replace(exchange, written=self._written(exchange.reply))

    def look_for_ids(self) -> None:
        """Find out whether the server tells ids, by asking once."""
        if self.dialect is not DIALECTS["chat"]:
            return
        self.shows_ids = True
        reply = self.ask(ProbeRequest(text="Say hello.", max_tokens=8), stream=False).reply
        self.shows_ids = reply.status == 200 and reply.token_ids is not None

    def _written(self, reply: ObservedReply) -> str | None:
        """What the model wrote: vLLM's `/detokenize` spells ids with their special tokens."""
        if not reply.token_ids:
            return None
        root = self.url.removesuffix("/v1")
        try:
            response = self._client.post(
                f"{root}/detokenize", json={"model": self.model, "tokens": list(reply.token_ids)}
            )
            return str(response.json()["prompt"]) if response.is_success else None
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None

    def close(self) -> None:
        self._client.close()


def read_reply(dialect: VerifyDialect, status: int, raw: str, streamed: bool) -> ObservedReply:
    """What a client makes of the bytes of a reply."""
    if status != 200:
        return ObservedReply(status=status, error=raw)
    if streamed:
        return dialect.streamed(server_events(raw))
    try:
        payload = json_of(raw)
    except ValueError:
        return ObservedReply(faults=(f"the reply is not JSON: {raw[:80]!r}",))
    return dialect.whole(payload) if isinstance(payload, Mapping) else ObservedReply(faults=("the reply is no object",))


def server_events(raw: str) -> Iterator[ServerEvent]:
    """The events of a stream, as the specification of server-sent events reads it."""
    name, data = "", list[str]()
    for line in [*raw.replace("\r\n", "\n").split("\n"), ""]:
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = "", []
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
