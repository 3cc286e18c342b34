"""One server over HTTP: a request goes out, a reply or a stream comes in, and every byte is kept."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from ..errors import UnbraidError
from .dialects import DIALECTS, ServerEvent, VerifyDialect
from .exchange import ObservedReply, ProbeRequest, VerifyExchange, json_of
from .refusals import RefusedField, fitted, refused_fields

_VERSION = {"anthropic-version": "2023-06-01"}
_PATIENCE = 5
"""How often a server is asked that has too many requests."""
_LINE_END = re.compile(r"\r\n|\n|\r")


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
        self._timeout = timeout
        self._answered = False
        self.shows_ids = False
        """Whether the server tells the ids of what the model wrote."""
        self.refused: dict[str, RefusedField] = {}
        """The fields that the server refuses, and what became of them."""
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
            for _ in range(_PATIENCE):
                response = self._client.request(method, f"{self.url}{path}", content=content, headers=headers)
                if response.status_code != 429:
                    break
                time.sleep(_pause(response))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            if self._answered:  # it was there, and is gone
                return 0, f"it cannot be reached any more: {error}"
            raise UnbraidError(f"{self.url} cannot be reached: {error}") from error
        except httpx.TimeoutException:
            return 0, f"nothing came for {self._timeout:g} seconds; if it is only slow, give --timeout more than that"
        except httpx.HTTPError as error:
            return 0, f"no whole reply: {type(error).__name__}: {error}"
        self._answered = True
        return response.status_code, response.text

    def ask(self, request: ProbeRequest, *, stream: bool) -> VerifyExchange:
        """Send a request and read its reply as a client does."""
        request = replace(request, max_tokens=request.max_tokens or self._max_tokens)
        body = {**self.dialect.body(request, self.model, stream=stream), **self._extra, **(request.raw or {})}
        if self.shows_ids:
            body["return_token_ids"] = True
        body, status, raw = self.post(self.dialect.path, body)
        exchange = VerifyExchange(
            request=request,
            body=body,
            streamed=stream,
            raw=raw,
            reply=read_reply(self.dialect, status, raw, stream),
            counted=not stream or "stream_options" not in self.refused,
        )
        return self.spelled(exchange)

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[dict[str, Any], int, str]:
        """What was sent, status and text. What the server refuses of the request is learned, and sent otherwise."""
        sent = first = fitted(body, self.refused)
        status, raw = answer = self.send("POST", path, sent)
        tried: dict[str, RefusedField] = {}
        while status in (400, 422):
            named = refused_fields(raw, sent, self._extra)
            name, refused = next((each for each in named if each[1].sent_as not in tried), ("", None))
            if refused is None:
                break
            tried[name] = refused
            sent = fitted(sent, {name: refused})
            status, raw = self.send("POST", path, sent)
        if status == 200:
            self.refused |= tried
            return sent, status, raw
        return first, *answer  # nothing that it refuses by name was what it refused

    def meet(self, *, ids: bool) -> None:
        """Ask once, and find out whether the server tells ids where these are wanted."""
        hello = ProbeRequest(text="Say hello.", max_tokens=16)
        if ids and self.dialect is DIALECTS["chat"]:
            self.shows_ids = True
            reply = self.ask(hello, stream=False).reply
            self.shows_ids = reply.status == 200 and reply.token_ids is not None
            if self.shows_ids:
                return
        reply = self.ask(hello, stream=False).reply
        if reply.status in (401, 403, 404, 405):
            where = f"{self.url}{self.dialect.path}"
            raise UnbraidError(f"{where} answers {reply.status} for the model {self.model!r}: {reply.error[:300]}")

    def spelled(self, exchange: VerifyExchange) -> VerifyExchange:
        """The exchange with what the model was given and wrote, where the server tells ids and spells them."""
        reply = exchange.reply
        output = self._spelled(reply.token_ids)
        before = self._spelled((reply.prompt_ids or ())[-64:]) if output is not None else None
        return replace(exchange, written=output, before=before)

    def _spelled(self, ids: Sequence[int] | None) -> str | None:
        """vLLM's `/detokenize` spells ids with their special tokens."""
        if not ids:
            return None
        root = self.url.removesuffix("/v1")
        try:
            response = self._client.post(f"{root}/detokenize", json={"model": self.model, "tokens": list(ids)})
            return str(response.json()["prompt"]) if response.is_success else None
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None

    def completed(self, prompt: Sequence[int], max_tokens: int | None) -> str | None:
        """What the model writes after these ids at temperature 0, as raw text; None where the server does not tell."""
        body = {"model": self.model, "prompt": list(prompt), "max_tokens": max_tokens or self._max_tokens}
        status, raw = self.send("POST", "/completions", {**body, "temperature": 0, "skip_special_tokens": False})
        try:
            return str(json_of(raw)["choices"][0]["text"]) if status == 200 else None
        except (ValueError, LookupError, TypeError):
            return None

    def close(self) -> None:
        self._client.close()


def read_reply(dialect: VerifyDialect, status: int, raw: str, streamed: bool) -> ObservedReply:
    """What a client makes of the bytes of a reply."""
    if status != 200:
        return ObservedReply(status=status, error=raw)
    try:
        return _read(dialect, raw, streamed)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        return ObservedReply(faults=(f"the reply has not the form of its API ({error!r}): {raw[:80]!r}",))


def _read(dialect: VerifyDialect, raw: str, streamed: bool) -> ObservedReply:
    if streamed:
        return dialect.streamed(server_events(raw))
    try:
        payload = json_of(raw)
    except ValueError:
        return ObservedReply(faults=(f"the reply is not JSON: {raw[:80]!r}",))
    return dialect.whole(payload) if isinstance(payload, Mapping) else ObservedReply(faults=("the reply is no object",))


def _pause(response: httpx.Response) -> float:
    """The seconds after which a server wants to be asked again."""
    try:
        return min(float(response.headers.get("retry-after", "")), 60)
    except ValueError:
        return 5


def server_events(raw: str) -> Iterator[ServerEvent]:
    """The events of a stream, as the specification of server-sent events reads it."""
    name, data = "", list[str]()
    for line in [*_LINE_END.split(raw.removeprefix("\ufeff")), ""]:
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = "", []
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
