"""Where the servers of an engine are, and where they are now.

    http://gpu1:8000                      one server
    dns+http://vllm:8000                  a server at each address behind a name, which is looked up again
    file:/etc/unbraid/replicas            the URL of a server in each line of a file, which is read again
    kubernetes+http://vllm.models:http    each ready endpoint of a Service, by Kubernetes' EndpointSlices

`source_of` reads such a text. A source that changes is followed: it says where the servers are, again and again, and
`engines.server.Servers` has its replicas there. What a source said last holds while it cannot be asked.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx

from ..base import EngineDown, EngineError

_log = logging.getLogger(__name__)
INTERVAL = 5.0
"""Seconds from one look at a source to the next."""
_WATCH = 300
"""Seconds that Kubernetes' API tells changes in one answer."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has the token of its service account."""
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
_NOT_ALLOWED = (401, 403)
_SERVICE = re.compile(r"https?://[a-z0-9-]+(\.[a-z0-9.-]+)?(:[a-z0-9-]+)?(/\S*)?", re.ASCII)
"""A Service, its namespace, the name or number of its port, and a path."""


class Source(ABC):
    """Where servers are."""

    changes: ClassVar[bool] = True
    prefix: ClassVar[str] = ""
    """What the text begins with."""
    example: ClassVar[str]

    @staticmethod
    def can_be(place: str) -> bool:
        """Whether the rest of the text can name a server, up or not."""
        return is_url(place)

    def __init__(self, text: str) -> None:
        self.text = text
        self.urls: tuple[str, ...] = ()
        """The addresses in the last answer."""
        self.problem: EngineError | None = None
        """Why it could not be asked, if the last try failed."""
        self.looked = asyncio.Event()
        """Set after the first try."""

    @abstractmethod
    def answers(self) -> AsyncGenerator[tuple[str, ...], None]:
        """The URLs of the servers now, and again when they may have changed. Ends if it has to be asked anew."""

    async def follow(self, changed: Callable[[], None]) -> None:
        """Keep `urls` up to date, without end. `changed` is called after each look."""
        while True:
            try:
                async with aclosing(self.answers()) as answers:
                    async for urls in answers:
                        self.urls, self.problem = urls, None
                        self.looked.set()
                        changed()
            except EngineError as error:
                if str(error) != str(self.problem):
                    _log.warning("where the servers are now is not known: %s", error)
                self.problem = error
                self.looked.set()
                changed()
            await asyncio.sleep(INTERVAL)


class FixedSource(Source):
    """One server, at its URL."""

    changes = False
    example = "http://gpu1:8000"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.urls = (text,)
        self.looked.set()

    async def answers(self) -> AsyncGenerator[tuple[str, ...], None]:
        yield self.urls


class DnsSource(Source):
    """The servers behind a name. All have the name in `Host` and in their certificates, so it goes along as a fragment
    of the URL (`Address`)."""

    prefix = "dns+"
    example = "dns+http://vllm:8000"

    async def answers(self) -> AsyncGenerator[tuple[str, ...], None]:
        url = urlsplit(self.text.removeprefix(self.prefix))
        try:
            host, port = url.hostname or "", url.port
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise EngineDown(f"{self.text} cannot be looked up: {error}") from error
        user, at, name = url.netloc.rpartition("@")
        places = {_place(str(info[4][0]), port) for info in infos if info[0] == infos[0][0]}
        yield tuple(sorted(f"{url.scheme}://{user}{at}{place}{url.path}#{name}" for place in places))


class FileSource(Source):
    """The servers that a file names, one URL in each line. Empty lines and those with `#` are skipped."""

    prefix = "file:"
    example = "file:/etc/unbraid/replicas"

    @staticmethod
    def can_be(place: str) -> bool:
        return bool(place)

    async def answers(self) -> AsyncGenerator[tuple[str, ...], None]:
        path = Path(self.text.removeprefix(self.prefix).replace("//", "/", 1))
        try:
            text = await asyncio.to_thread(path.read_text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise EngineDown(f"the file {path} with the URLs of servers cannot be read: {error}") from error
        yield tuple(self._urls(path, text))

    def _urls(self, path: Path, text: str) -> Iterator[str]:
        for number, line in enumerate(text.splitlines(), 1):
            url = line.partition(" #")[0].strip()
            if not url or url.startswith("#"):
                continue
            if not is_url(url):
                raise EngineDown(f"{path}:{number} is no URL of a server, such as http://gpu1:8000: {url[:80]}")
            yield url


class KubernetesSource(Source):
    """The ready endpoints of a Service: listed, then watched. A pod that ends is no longer ready."""

    prefix = "kubernetes+"
    example = "kubernetes+http://vllm.models:http"

    @staticmethod
    def can_be(place: str) -> bool:
        return _SERVICE.fullmatch(place) is not None

    async def answers(self) -> AsyncGenerator[tuple[str, ...], None]:
        url = urlsplit(self.text.removeprefix(self.prefix))
        name, _, port = url.netloc.partition(":")
        service, *rest = name.split(".")
        selected = {"labelSelector": f"kubernetes.io/service-name={service}"}
        with self._errors():
            path = _SLICES.format(rest[0] if rest else (ACCOUNT / "namespace").read_text().strip())
            async with _api() as client:
                reply = await client.get(path, params=selected)
                listed = reply.raise_for_status().json()
                slices = {one["metadata"]["name"]: one for one in listed["items"]}
                yield self._urls(slices.values(), url.scheme, port, url.path)
                since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with client.stream("GET", path, params={**selected, **since, "timeoutSeconds": _WATCH}) as events:
                    events.raise_for_status()
                    async for line in events.aiter_lines():
                        event = json.loads(line)
                        if event["type"] == "ERROR":  # what came since is no longer there: list it anew
                            return
                        one = event["object"]
                        slices[one["metadata"]["name"]] = {} if event["type"] == "DELETED" else one
                        yield self._urls(slices.values(), url.scheme, port, url.path)

    def _urls(self, slices: Iterable[Mapping[str, Any]], scheme: str, port: str, path: str) -> tuple[str, ...]:
        places: dict[str, set[str]] = {}
        for one in slices:
            for endpoint in one.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready") is not False:
                    place = _place(endpoint["addresses"][0], self._port(one.get("ports") or (), port))
                    places.setdefault(one["addressType"], set()).add(place)
        # A pod with addresses of both kinds is in two slices.
        family = min(places, default="")
        return tuple(sorted(f"{scheme}://{place}{path}" for place in places.get(family, ())))

    def _port(self, ports: Iterable[Mapping[str, Any]], name: str) -> int:
        numbers = [int(one["port"]) for one in ports if name in ("", one.get("name"), str(one["port"]))]
        if len(numbers) == 1:
            return numbers[0]
        names = ", ".join(f"{one.get('name') or ''} {one['port']}".strip() for one in ports)
        raise EngineDown(f"{self.text}: name one port of the pods, by number or name, after a colon: {names}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            hint = "; the role in deploy/kubernetes/gateway allows it" if status in _NOT_ALLOWED else ""
            raise EngineDown(f"{self.text}: Kubernetes' API lists no EndpointSlices ({status}){hint}") from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise EngineDown(f"{self.text}: Kubernetes' API cannot be reached: {reason}") from error
        except OSError as error:
            raise EngineDown(f"{self.text}: no service account is mounted here: {error}") from error
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise EngineDown(f"{self.text}: Kubernetes' API says what cannot be read: {error!r}") from error


def _api() -> httpx.AsyncClient:
    """A client of the API, by the service account of this pod. Its token is read each time: it changes."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise FileNotFoundError("KUBERNETES_SERVICE_HOST is not set: this is no pod")
    return httpx.AsyncClient(
        base_url=f"https://{_place(host, int(port))}",
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}"},
        timeout=httpx.Timeout(10.0, read=_WATCH + 30.0),
        verify=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
        trust_env=False,
    )


def _place(address: str, port: int | None) -> str:
    host = f"[{address}]" if ":" in address else address
    return host if port is None else f"{host}:{port}"


def source_of(text: str) -> Source:
    """The source that a text names. Raises `EngineError` if it can never name a server."""
    kind = next(kind for kind in (DnsSource, FileSource, KubernetesSource, FixedSource) if text.startswith(kind.prefix))
    if not kind.can_be(text.removeprefix(kind.prefix)):
        shown = re.sub(r"//[^/]*@", "//", text)  # without the password
        raise EngineError(f"{shown!r} names no server: give the like of {kind.example}")
    return kind(text)


def is_url(text: str) -> bool:
    """Whether a text is the URL of a server, up or not."""
    try:
        url = urlsplit(text)
        httpx.URL(text)
        has_port = url.port != 0
    except (ValueError, httpx.InvalidURL):
        return False
    return url.scheme in ("http", "https") and bool(url.hostname) and has_port and not re.search(r"\s", text)


async def first_server(texts: Iterable[str], flag: str) -> str:
    """The URL of the first server that these texts name now. Errors advise to give `flag` instead."""
    for text in texts:
        async with aclosing(source_of(text).answers()) as answers:
            if urls := await anext(answers):
                return urls[0]
    raise EngineDown(f"{', '.join(texts)} names no server yet: start one, or give {flag}")
