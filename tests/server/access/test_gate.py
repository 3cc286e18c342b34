"""What pages of the web may send: hosts, origins and content types."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from unbraid import UnbraidError
from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.access.gate import is_loopback, read_origins
from unbraid.server.http import UNBUFFERED

from ...support import patient_http
from ...support.running_server import RunningServer, service_of, serving
from ...support.waiting import PATIENCE
from .support import CHAT, HELLO

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def local() -> Iterator[RunningServer]:
    """A server as it is on a loopback address, for pages of one site."""
    engine = ReplayEngine(lambda _: script("Hi there."))
    settings: dict[str, Any] = {"hosts": ("Box.example",), "check_host": True}
    with serving(service_of(engine, "qwen3"), ("https://app.example", "null"), **settings) as server:
        yield server


@pytest.fixture(scope="module")
def public() -> Iterator[RunningServer]:
    """One as it is elsewhere."""
    engine = ReplayEngine(lambda _: script("Hi there."))
    with serving(service_of(engine, "qwen3")) as server:
        yield server


def ask(server: RunningServer, path: str = CHAT, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return patient_http.post(server.url + path, content=HELLO, headers={**JSON, **given})


# Hosts


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.:8000",
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]",
        "[::1]:8000",
        "box.example:1",
    ],
)
def test_names_of_this_machine(local: RunningServer, host: str) -> None:
    assert ask(local, Host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
        "10.0.0.1",
        "a b",
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/health", "/none", "/v1/messages"])
def test_names_that_were_made_to_point_here(local: RunningServer, host: str, path: str) -> None:
    response = ask(local, path, Host=host)
    assert response.status_code == 421, response.text
    assert "--allow-host" in response.json()["error"]["message"]
    assert ("request_id" in response.json()) == (path == "/v1/messages")


def test_a_request_that_names_no_host(local: RunningServer) -> None:
    for version, code in (("1.1", 400), ("1.0", 200)):  # what is so old is no browser
        with socket.create_connection(("127.0.0.1", local.port), timeout=PATIENCE) as client:
            client.sendall(f"GET /health HTTP/{version}\r\n\r\n".encode())
            assert client.recv(100).startswith(f"HTTP/1.1 {code} ".encode())


def test_any_name_elsewhere(public: RunningServer) -> None:
    assert ask(public, Host="evil.example").status_code == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("127.1.2.3", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_where_hosts_are_looked_at(host: str, own: bool) -> None:
    assert is_loopback(host) == own


# Origins


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://app.example"},
        {"Origin": "HTTPS://App.example"},
        {"Origin": "null"},
        {"Origin": "https://app.example", "Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://localhost:8000", "Host": "localhost:8000"},
        {"Origin": "https://localhost", "Host": "localhost"},  # a proxy has ended TLS
        {"Origin": "http://[::1]:5", "Host": "[::1]:5"},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
    ],
    ids=str,
)
def test_requests_that_are_let_in(local: RunningServer, headers: dict[str, str]) -> None:
    assert ask(local, **headers).status_code == 200


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "http://app.example"},
    {"Origin": "https://app.example.evil.example"},
    {"Origin": "https://app.example:444"},
    {"Origin": "file://"},
    {"Origin": ""},
    {"Origin": "http://localhost:3000", "Host": "localhost:8000"},
    {"Origin": "http://localhost", "Host": "localhost:8000"},
    {"Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("path", [CHAT, "/v1/audio/transcriptions", "/v1/responses/resp_1/cancel", "/v1/messages"])
def test_requests_of_foreign_pages(local: RunningServer, path: str, headers: dict[str, str]) -> None:
    response = ask(local, path, **headers)
    assert response.status_code == 403, response.text
    assert "--allow-origin" in response.json()["error"]["message"]


def test_null_is_an_origin_like_any_other(public: RunningServer) -> None:
    assert ask(public, Origin="null").status_code == 403


def test_a_link_to_the_server_can_be_followed(local: RunningServer) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert patient_http.get(local.url + "/health", headers=headers).status_code == 200


def test_a_streamed_reply_has_the_headers_of_a_whole_one(local: RunningServer) -> None:
    hello = json.loads(HELLO)
    for origin in ({}, {"Origin": "https://app.example"}):
        said = []
        for stream in (False, True):
            response = patient_http.post(local.url + CHAT, json={**hello, "stream": stream}, headers=origin)
            said.append({name: response.headers[name] for name in response.headers if name not in OF_ONE_KIND})
        assert said[0] == said[1]
        assert ("access-control-allow-origin" in said[1]) == bool(origin)


OF_ONE_KIND = {"content-length", "content-type", "date", "transfer-encoding", "x-request-id"}
OF_ONE_KIND |= set(map(str.lower, UNBUFFERED))
"""Headers in which one reply may differ from another."""


def test_a_page_that_may_is_told_so(local: RunningServer) -> None:
    headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    response = patient_http.options(local.url + CHAT, headers=headers)
    assert response.headers["access-control-allow-origin"] == "https://app.example"
    # Chrome asks this where a page of the web calls a server on the user's machine.
    private = {**headers, "Access-Control-Request-Private-Network": "true"}
    response = patient_http.options(local.url + CHAT, headers=private)
    assert (response.status_code, response.headers["access-control-allow-private-network"]) == (200, "true")
    assert ask(local, Origin="https://app.example").headers["access-control-expose-headers"] == "*"
    headers["Origin"] = "https://evil.example"
    response = patient_http.options(local.url + CHAT, headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_origins_are_read_as_browsers_write_them() -> None:
    assert read_origins(["https://A.example/", "null", "*"]) == ("https://a.example", "null", "*")
    for wrong in ("a.example", "https://a.example/chat", "", "https://"):
        with pytest.raises(UnbraidError, match="--allow-origin"):
            read_origins([wrong])


# Content types


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json", "application/json;a=b"]
)
def test_json(public: RunningServer, kind: str) -> None:
    assert ask(public, Content_Type=kind).status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", ";", "json"),
        *("application/jsonp", "text/plain; application/json", "application/json, text/plain", "application/+json"),
    ],
)
@pytest.mark.parametrize(
    "path", [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/parse", "/v1/tokenize"]
)
def test_what_a_page_could_send_without_asking_is_not_json(public: RunningServer, path: str, kind: str) -> None:
    response = ask(public, path, Content_Type=kind)
    assert response.status_code == 415, response.text
    assert "-H 'Content-Type: application/json'" in response.json()["error"]["message"]


def test_a_body_that_is_packed(public: RunningServer) -> None:
    assert ask(public, Content_Encoding="identity").status_code == 200
    response = ask(public, Content_Encoding="gzip")
    assert response.status_code == 415
    assert "without Content-Encoding" in response.json()["error"]["message"]


def test_a_body_without_a_type(public: RunningServer) -> None:
    """A page can send this, too."""
    response = patient_http.post(public.url + CHAT, content=HELLO)
    assert response.status_code == 415
    assert "no Content-Type" in response.json()["error"]["message"]
