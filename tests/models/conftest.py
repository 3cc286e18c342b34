"""Package indexes for the tests of downloads: nothing comes from the network."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .packages import SMALL, EntryNotFoundError, RepositoryNotFoundError


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and from nowhere else."""
    pytest.importorskip("pip")
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A registry of npm: packages by their names."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    packages: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").removesuffix(".tgz")
            data = packages.get(name)
            if data is not None and not self.path.endswith(".tgz"):
                dist = {"tarball": f"{address}/{name}.tgz", "shasum": hashlib.sha1(data).hexdigest()}
                versions = {"1.0.0": {"name": name, "version": "1.0.0", "dist": dist}}
                data = json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": versions}).encode()
            self.send_response(404 if data is None else 200)
            self.end_headers()
            self.wfile.write(data or b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("npm_config_registry", address)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield packages
        server.shutdown()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A hub: files of repositories, or an error."""
    contents: dict[str, Any] = {}
    asked: list[str] = []

    def find(repository: str) -> list[str]:
        found = contents.get(repository, RepositoryNotFoundError())
        if isinstance(found, Exception):
            raise found
        return list(found)

    class HfApi:
        def model_info(self, repository: str, timeout: float) -> types.SimpleNamespace:
            asked.append(repository)
            return types.SimpleNamespace(siblings=[types.SimpleNamespace(rfilename=name) for name in find(repository)])

    def hf_hub_download(repository: str, file: str, cache_dir: Path | None, etag_timeout: float) -> str:
        if file not in find(repository):
            raise EntryNotFoundError
        path = (cache_dir or tmp_path / "hub") / repository / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SMALL)
        return str(path)

    module = types.ModuleType("huggingface_hub")
    bars = types.SimpleNamespace(
        are_progress_bars_disabled=lambda: False, disable_progress_bars=int, enable_progress_bars=int
    )

    def snapshot_download(repository: str, cache_dir: Path | None, local_files_only: bool) -> str:
        assert local_files_only
        found = (cache_dir or tmp_path / "hub") / repository
        if not found.is_dir():
            raise FileNotFoundError
        return str(found)

    vars(module).update(HfApi=HfApi, hf_hub_download=hf_hub_download, snapshot_download=snapshot_download)
    vars(module).update(utils=bars, asked=asked)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return contents
