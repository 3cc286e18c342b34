"""Replicas that come and go: by a name, a file, and Kubernetes' API. Nothing that runs is lost."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from unbraid.engines import EngineDown, EngineError, Generation
from unbraid.engines.http import sources
from unbraid.engines.http.address import Address
from unbraid.engines.http.sources import source_of
from unbraid.engines.routing import Routing
from unbraid.engines.server import Servers
from unbraid.engines.vllm.server import VLLMEngine

from ..support.byte_vocabulary import VOCABULARY
from ..support.certificates import make
from ..support.fake_servers import FakeVLLM, Fault
from ..support.in_loop import collect, in_loop
from ..support.waiting import until
from .http_kinds import HELLO, PROMPT, ids_of

REQUEST = Generation(prompt=PROMPT)
LONG = list(b"a long answer") + HELLO


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "INTERVAL", 0.01)


def following(*texts: str) -> Servers:
    return VLLMEngine(list(texts), routing=Routing(check_interval=0.05, recheck=0.05), vocabulary=VOCABULARY)


def places(one: Servers) -> set[str]:
    return {replica.name for replica in one.replicas}


async def answer(one: Servers) -> list[int]:
    return ids_of(await collect(one.generate(REQUEST)))


def write(path: Path, *servers: FakeVLLM) -> None:
    path.write_text("# replicas\n\n" + "".join(f"{server.url}  # a GPU\n" for server in servers))


@in_loop
async def test_a_file_is_read_again(tmp_path: Path) -> None:
    async with FakeVLLM(HELLO) as first, FakeVLLM(HELLO) as second:
        file = tmp_path / "replicas"
        write(file, first)
        one = following(f"file:{file}")
        assert await answer(one) == HELLO
        write(file, first, second)
        await until(lambda: places(one) == {first.url, second.url})
        write(file, second)
        await until(lambda: places(one) == {second.url})
        before = len(first.generated)
        assert await answer(one) == HELLO
        assert len(first.generated) == before
        file.write_text("")
        await until(lambda: not one.replicas)
        with pytest.raises(EngineDown, match="names none"):
            await answer(one)
        with pytest.raises(EngineDown, match="there is no server now"):
            await one.check()
        write(file, first)
        await until(lambda: places(one) == {first.url})
        assert await answer(one) == HELLO
        await one.close()


@in_loop
async def test_what_a_file_said_holds_while_it_is_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeVLLM(HELLO) as server:
        file = tmp_path / "replicas"
        write(file, server)
        one = following(f"file://{file}")
        await one.check()
        for spoil in (lambda: file.write_text("gpu1:8000\n"), file.unlink):
            caplog.clear()
            spoil()
            await until(lambda: "where the servers are now is not known" in caplog.text)
            assert await answer(one) == HELLO
        await one.close()


@pytest.mark.parametrize(
    "text",
    [
        *("", "gpu1:8000", "ftp://gpu1", "http://", "http://[::1", "http://gpu1:99999", "http://me:secret@gpu 1"),
        *("dns+http://", "dns+ftp://gpu1", "dns+http://gpu1:http", "file:"),
        *("kubernetes+http://", "kubernetes+http://vllm:http:8000", "kubernetes+vllm"),
    ],
)
def test_what_can_never_name_a_server_is_refused_at_once(text: str) -> None:
    with pytest.raises(EngineError, match=r"names no server: give the like of .*(http://|/replicas)") as refused:
        following(text)
    assert "secret" not in str(refused.value)


@in_loop
async def test_a_source_that_cannot_be_asked_says_so(tmp_path: Path) -> None:
    one = following(f"file:{tmp_path / 'nothing'}")
    with pytest.raises(EngineDown, match="cannot be read"):
        await answer(one)
    await one.close()


@in_loop
async def test_an_output_ends_where_it_began_if_its_replica_goes(tmp_path: Path) -> None:
    async with FakeVLLM(LONG, pace=0.05) as goes, FakeVLLM(HELLO) as stays:
        file = tmp_path / "replicas"
        write(file, goes)
        one = following(f"file:{file}")
        outputs = one.generate(REQUEST)
        begun = [await anext(outputs)]
        gone = one.replicas[0]
        write(file, stays)
        await until(lambda: places(one) == {stays.url})
        assert gone.running == 1
        assert ids_of([*begun, *await collect(outputs)]) == LONG
        assert not stays.generated
        await until(lambda: gone not in one._watchers)  # its connections are closed
        await one.close()


@in_loop
async def test_an_output_moves_if_its_replica_goes_and_breaks(tmp_path: Path) -> None:
    async with FakeVLLM(LONG, pace=0.05, fault=Fault("cut", after=8)) as goes, FakeVLLM(LONG) as stays:
        file = tmp_path / "replicas"
        write(file, goes)
        one = following(f"file:{file}")
        outputs = one.generate(REQUEST)
        begun = [await anext(outputs)]
        write(file, stays)
        await until(lambda: places(one) == {stays.url})
        assert ids_of([*begun, *await collect(outputs)]) == LONG
        assert stays.generated[0]["prompt"] == [*PROMPT, *LONG[:8]]
        await one.close()


@in_loop
async def test_addresses_given_anew(tmp_path: Path) -> None:
    async with FakeVLLM(HELLO) as first, FakeVLLM(HELLO) as second:
        one = following(first.url)
        await one.check()
        kept = one.replicas[0]
        file = tmp_path / "replicas"
        write(file, second)
        one.follow([first.url, f"file:{file}"])
        await until(lambda: places(one) == {first.url, second.url})
        assert kept in one.replicas
        one.follow([second.url])
        assert places(one) == {second.url}
        with pytest.raises(EngineError, match="no engine was named"):
            one.follow([])
        await one.close()


class Names:
    """A resolver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", self._look_up, raising=False)
        self._real = type(loop).getaddrinfo
        self._loop = loop

    async def _look_up(self, host: Any, port: Any, **options: Any) -> Any:
        if host != "vllm.test":
            return await self._real(self._loop, host, port, **options)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in self.addresses]


@in_loop
async def test_all_addresses_behind_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    async with FakeVLLM(HELLO) as server:
        port = urlsplit(server.url).port
        names.addresses = ["127.0.0.1"]
        one = following(f"dns+http://vllm.test:{port}/v1")
        assert await answer(one) == HELLO
        assert server.asked[-1].headers["host"] == f"vllm.test:{port}"
        names.addresses = ["127.0.0.1", "127.0.0.2", "::1"]  # another family is the same servers again
        await until(lambda: places(one) == {f"http://127.0.0.{host}:{port}" for host in (1, 2)})
        names.addresses = []
        assert one._sources[0].problem is None
        await until(lambda: one._sources[0].problem is not None)
        assert len(one.replicas) == 2  # who cannot look up knows nothing new
        await one.close()


@in_loop
async def test_the_name_is_in_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is for 127.0.0.1, the server is at 127.0.0.2."""
    certificate = make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", certificate.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.both)
    hosts: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        hosts.append(head.partition("host: ")[2].partition("\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.2", 0, ssl=context)
    url = f"https://127.0.0.2:{server.sockets[0].getsockname()[1]}"
    named, unnamed = Address(f"{url}#127.0.0.1:443"), Address(url)
    assert await named.get("/") == {}
    assert hosts == ["127.0.0.1:443"]
    with pytest.raises(EngineDown, match="certificate"):
        await unnamed.get("/")
    await named.close()
    await unnamed.close()
    server.close()


class FakeKubernetes:
    """The part of Kubernetes' API that lists and watches EndpointSlices, with TLS and a token."""

    def __init__(self) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.status = 200
        self.expired = False
        self._watchers: list[asyncio.Queue[dict[str, Any] | None]] = []

    async def start(self, context: ssl.SSLContext) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)

    def put(self, name: str, *addresses: str, ports: dict[str, int], gone: str = "", kind: str = "IPv4") -> None:
        endpoints = [{"addresses": [one], "conditions": {"ready": one != gone}} for one in addresses]
        listed = [{"name": name, "port": port} for name, port in ports.items()]
        one = {"metadata": {"name": name}, "addressType": kind, "endpoints": endpoints, "ports": listed}
        self._tell("MODIFIED" if name in self.slices else "ADDED", one)
        self.slices[name] = one

    def delete(self, name: str) -> None:
        self._tell("DELETED", self.slices.pop(name))

    def end_watches(self) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(None)
        self._watchers.clear()

    def _tell(self, kind: str, one: dict[str, Any]) -> None:
        for watcher in self._watchers:
            watcher.put_nowait({"type": kind, "object": one})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        path = head.split(" ")[1]
        self.asked.append(path)
        query = parse_qs(urlsplit(path).query)
        if "authorization: bearer word" not in head.lower() or self.status != 200:
            writer.write(
                f"HTTP/1.1 {403 if self.status == 200 else self.status} x\r\nContent-Length: 0\r\n\r\n".encode()
            )
        elif "watch" not in query:
            body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [*self.slices.values()]}).encode()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        else:
            await self._watch(writer)

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._watchers.append(events)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if self.expired:
            events.put_nowait({"type": "ERROR", "object": {"code": 410}})
        while (event := await events.get()) is not None:
            data = json.dumps(event).encode() + b"\n"
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A service account, and what the API shows."""
    certificate = make(tmp_path)
    (tmp_path / "ca.crt").write_text(Path(certificate.certificate).read_text())
    (tmp_path / "token").write_text("word\n")
    (tmp_path / "namespace").write_text("models")
    monkeypatch.setattr(sources, "ACCOUNT", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.both)
    return context


async def cluster(stack: AsyncExitStack, account: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> FakeKubernetes:
    api = FakeKubernetes()
    server = await api.start(account)
    stack.callback(server.close)
    stack.callback(api.end_watches)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.sockets[0].getsockname()[1]))
    return api


@in_loop
async def test_the_endpoints_of_a_service(account: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        api = await cluster(stack, account, monkeypatch)
        server = await stack.enter_async_context(FakeVLLM(HELLO))
        port = urlsplit(server.url).port
        assert port is not None
        api.put("a", "127.0.0.1", ports={"http": port, "metrics": 1})
        one = following("kubernetes+http://vllm:http")
        stack.push_async_callback(one.close)
        assert await answer(one) == HELLO
        assert "/namespaces/models/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dvllm" in api.asked[0]
        await until(lambda: bool(api._watchers))
        api.put("b", "127.0.0.2", "127.0.0.3", gone="127.0.0.3", ports={"http": 8000})  # the third is about to end
        api.put("c", "fd00::1", ports={"http": 8000}, kind="IPv6")  # the same pod, by its other address
        await until(lambda: places(one) == {server.url, "http://127.0.0.2:8000"})
        api.delete("b")
        await until(lambda: places(one) == {server.url})
        api.expired = True
        api.end_watches()
        api.put("b", "127.0.0.4", ports={"http": 8000})
        await until(lambda: places(one) == {server.url, "http://127.0.0.4:8000"})
        api.status = 500
        api.end_watches()
        await until(lambda: one._sources[0].problem is not None)
        assert len(one.replicas) == 2


@in_loop
async def test_what_kubernetes_says_if_it_may_not_be_asked(
    account: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        source = source_of("kubernetes+http://vllm.other")
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with pytest.raises(EngineDown, match="this is no pod"):
            await anext(source.answers())
        api = await cluster(stack, account, monkeypatch)
        api.put("a", "10.0.0.1", ports={"http": 8000, "metrics": 9000})
        with pytest.raises(EngineDown, match=r"name one port of the pods.*http 8000, metrics 9000"):
            await anext(source.answers())
        assert "/namespaces/other/" in api.asked[-1]
        (sources.ACCOUNT / "token").write_text("another")
        with pytest.raises(EngineDown, match="the role in deploy/kubernetes/gateway allows it"):
            await anext(source.answers())
