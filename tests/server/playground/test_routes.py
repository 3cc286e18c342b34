"""The playground on the server: what is public, what needs a key, and what a browser is told to forbid."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from unbraid.engines.replay import ReplayEngine, script
from unbraid.server.playground.routes import ROUTES
from unbraid.server.playground.views import about

from ...support import patient_http
from ...support.running_server import RunningServer, service_of, serving

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = ReplayEngine([script("Hi.")], repeat=True, model="replayed")
    with serving(service_of(engine, "qwen3", api_keys=("secret",)), check_host=True) as running:
        yield running


def get(server: RunningServer, path: str, **headers: str) -> httpx.Response:
    return patient_http.get(server.url + path, headers=headers)


def test_browsers_get_the_page_and_others_the_version(server: RunningServer) -> None:
    page = get(server, "/", **BROWSER)
    assert page.headers["content-type"].startswith("text/html")
    assert "unbraid playground" in page.text
    other = get(server, "/")
    assert set(other.json()) == {"version"}
    assert page.headers["vary"] == other.headers["vary"] == "Accept"


def test_the_page_may_load_nothing_else_and_stand_in_no_frame(server: RunningServer) -> None:
    policy = get(server, "/", **BROWSER).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert get(server, "/playground/app.js").headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("name", "kind"), [("app.js", "text/javascript"), ("style.css", "text/css")])
def test_files_come_with_their_type_and_once(server: RunningServer, name: str, kind: str) -> None:
    first = get(server, f"/playground/{name}")
    assert first.headers["content-type"].startswith(kind)
    again = get(server, f"/playground/{name}", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["nope.js", "..%2froutes.py", "%2e%2e/routes.py", "/etc/passwd", "recorded.json", ""])
def test_other_files_are_not_there(server: RunningServer, path: str) -> None:
    assert get(server, f"/playground/{path}").status_code == 404


def test_views_need_the_key(server: RunningServer) -> None:
    config = get(server, "/playground/config.json").json()
    assert config == {"server": True, "key": True, "recorded": config["recorded"], **about()}
    for path, method, _, public in ROUTES:
        reply = patient_http.request(method, server.url + path.replace("{view}", "formats"), json={})
        assert (reply.status_code == 401) is not public, path
    key = {"Authorization": "Bearer secret"}
    found = get(server, "/playground/models.json", **key).json()
    assert found == {
        "models": [{"name": "replayed", "format": "qwen3", "chats": True, "tokens": False, "speaks": False}],
        "listeners": [],
    }
    asked = patient_http.post(f"{server.url}/playground/views/formats", json={}, headers=key)
    assert len(asked.json()["formats"]) > 80


def test_what_is_wrong_with_a_request_is_told(server: RunningServer) -> None:
    key = {"Authorization": "Bearer secret"}
    reply = patient_http.post(f"{server.url}/playground/views/apart", json={"format": "no-such"}, headers=key)
    assert reply.status_code == 400
    assert "no format named" in reply.json()["error"]["message"]


def test_a_costly_view_is_answered_all_the_same(server: RunningServer) -> None:
    """It takes more than a thread is allowed, and goes to a worker."""
    key = {"Authorization": "Bearer secret"}
    tools = [
        {"name": f"f{n}", "strict": True, "parameters": {"properties": {"a": {"type": "string"}}}} for n in range(9)
    ]
    body = {"format": "glm-4.7", "tools": tools, "tool_choice": "required"}
    reply = patient_http.post(f"{server.url}/playground/views/grammars", json=body, headers=key)
    assert [one.get("error") for one in reply.json()["syntaxes"] if one["name"] == "gbnf"] == [None]


def test_pages_of_others_may_not_ask(server: RunningServer) -> None:
    headers = {"Authorization": "Bearer secret", "Origin": "https://evil.example"}
    assert patient_http.post(f"{server.url}/playground/views/formats", json={}, headers=headers).status_code == 403
    assert get(server, "/", Host="evil.example", **BROWSER).status_code == 421


def test_a_server_can_do_without_it() -> None:
    service = service_of(ReplayEngine([script("Hi.")], repeat=True), "qwen3")
    with serving(service, playground=False) as running:
        assert set(get(running, "/", **BROWSER).json()) == {"version"}
        assert get(running, "/playground/app.js").status_code == 404
