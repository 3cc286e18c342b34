"""Settings that are read again: keys, rates, models and replicas change, and no stream is dropped."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from unbraid import UnbraidError
from unbraid.engines.replay import script
from unbraid.engines.server import Servers
from unbraid.server.app import create_app
from unbraid.server.loading import reload
from unbraid.server.loading.reload import Reloader
from unbraid.server.loading.service import load, load_model
from unbraid.server.settings_sources import settings_of

from ..support import patient_http
from ..support.byte_vocabulary import END
from ..support.fake_servers import FakeVLLM
from ..support.in_loop import in_loop
from ..support.serve_process import HELLO, record, serve
from ..support.waiting import PATIENCE, until, wait_for

SAID = [*b"A long and winding answer.", END]
OWN = ('format = "hermes"', 'chat_template = "chatml"')


def toml(path: Path, models: dict[str, str], **settings: Any) -> None:
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    for name, url in models.items():
        lines += ["[[models]]", f'name = "{name}"', f'openai = ["{url}"]', *OWN]
    path.write_text("\n".join(lines))


class Reloaded:
    """A service with its settings in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> Any:
        return settings_of({"config": str(self.path), "plan_workers": 0, "store": "none"}, {})

    async def start(self) -> None:
        settings = self.settings()
        self.service = await load(settings)
        self.reloader = Reloader(self.service, settings, self.settings)
        transport = httpx.ASGITransport(app=create_app(self.service))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE)

    async def status(self, model: str, key: str = "first") -> int:
        body = {"model": model, "messages": HELLO, "max_tokens": 64}
        headers = {"Authorization": f"Bearer {key}"}
        return (await self.client.post("/v1/chat/completions", json=body, headers=headers)).status_code


@in_loop
async def test_what_changes_and_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "_IDLE", 1)
    path = tmp_path / "unbraid.toml"
    async with FakeVLLM(SAID) as one, FakeVLLM(SAID) as two:
        toml(path, {"a": one.url, "b": one.url}, api_key=["first"])
        server = Reloaded(path)
        await server.start()
        assert [await server.status(model) for model in "ab"] == [200, 200]
        kept, moved = server.service.models
        removed: Any = moved.engine
        toml(path, {"a": two.url, "c": two.url}, api_key=["second"], requests_per_minute=2, port=1)
        await server.reloader.reload()
        assert server.service.models[0] is kept
        assert isinstance(kept.engine, Servers)
        assert [replica.name for replica in kept.engine.replicas] == [two.url]
        assert [await server.status(model, "second") for model in "abc"] == [200, 404, 429]
        assert await server.status("a", "first") == 401
        closed = asyncio.Event()
        removed.close = closed_by(removed.close, closed)
        del moved
        await asyncio.wait_for(closed.wait(), PATIENCE)


def closed_by(close: Callable[[], Any], closed: asyncio.Event) -> Callable[[], Any]:
    async def note() -> None:
        closed.set()
        await close()

    return note


@in_loop
async def test_settings_that_are_wrong_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "unbraid.toml"
    async with FakeVLLM(SAID) as one:
        toml(path, {"a": one.url}, api_key=["first"])
        server = Reloaded(path)
        await server.start()
        before = server.service.models
        path.write_text("api_key = [")
        with pytest.raises(UnbraidError, match="is no TOML"):
            await server.reloader.reload()
        toml(path, {"a": one.url, "b": "file:/nowhere"}, api_key=["second"])
        path.write_text(path.read_text().replace("chatml", "nothing"))
        with pytest.raises(UnbraidError):
            await server.reloader.reload()
        toml(path, {"a": one.url})
        with pytest.raises(UnbraidError, match="no API key any more"):
            await server.reloader.reload()
        toml(path, {"a": "gpu1:8000"}, api_key=["second"])
        with pytest.raises(UnbraidError, match="'gpu1:8000' names no server"):
            await server.reloader.reload()
        assert server.service.models is before
        assert await server.status("a") == 200
        assert await server.status("a", "none") == 401
        wanted = asyncio.Event()
        task = asyncio.create_task(server.reloader.run(wanted))
        wanted.set()
        await until(lambda: "the settings stay as they are" in caplog.text)
        path.write_text("api_key = [")
        wanted.set()
        await until(lambda: "is no TOML" in caplog.text)
        task.cancel()


@in_loop
async def test_what_was_loaded_beside_what_cannot_be_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "unbraid.toml"
    async with FakeVLLM(SAID) as one:
        toml(path, {"a": one.url})
        server = Reloaded(path)
        await server.start()
        closed = asyncio.Event()

        async def loading(settings: Any) -> Any:
            if settings.served_model_name == ("c",):
                raise OSError("no library of ours raises this")
            served = await load_model(settings)
            served.engine.close = closed_by(served.engine.close, closed)  # type: ignore[method-assign]
            return served

        monkeypatch.setattr(reload, "load_model", loading)
        toml(path, {"a": one.url, "b": one.url, "c": one.url})
        wanted = asyncio.Event()
        task = asyncio.create_task(server.reloader.run(wanted))
        wanted.set()
        await asyncio.wait_for(closed.wait(), PATIENCE)
        await until(lambda: "the settings stay as they are" in caplog.text)
        assert [await server.status(model) for model in "ab"] == [200, 404]
        assert not task.done()
        task.cancel()


@pytest.mark.system
@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_drops_no_stream(workers: int, tmp_path: Path) -> None:
    recording = record(tmp_path / "recording.jsonl", script("a b c d e f g h"), delay=0.3)
    path = tmp_path / "unbraid.toml"
    settings = f'replay = "{recording}"\nformat = "hermes"\nworkers = {workers}\nstore = "none"\n'
    path.write_text(settings + 'api_key = ["first"]\n')

    def models(key: str) -> int:
        return patient_http.get(f"{server.url}/models", headers={"Authorization": f"Bearer {key}"}).status_code

    with serve("--config", str(path)) as server:
        body = {"messages": HELLO, "stream": True}
        headers = {"Authorization": "Bearer first"}
        with httpx.stream(
            "POST", f"{server.url}/chat/completions", json=body, headers=headers, timeout=PATIENCE
        ) as response:
            lines = response.iter_lines()
            begun = next(line for line in lines if "content" in line)
            path.write_text(settings + 'api_key = ["second"]\n')
            server.popen.send_signal(signal.SIGHUP)
            wait_for(lambda: sum("were read again" in line for line in server.log) == workers)
            assert (models("second"), models("first")) == (200, 401)
            rest = [json.loads(line[6:]) for line in (begun, *lines) if line.startswith("data: {")]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in rest if chunk["choices"])
        assert text == "a b c d e f g h"
