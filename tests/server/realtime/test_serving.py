"""Sessions at a server that was started by its command: with TLS, and with several worker processes on one port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import websockets

from ...support.certificates import make, trusting
from ...support.places import ROOT
from ...support.serve_process import serve
from .support import Client, run
from .test_conversation import TOOL, check_order, respond

pytestmark = pytest.mark.system

SESSIONS = 6


def test_over_tls_with_several_workers(tmp_path: Path) -> None:
    """Sessions at once: each lives in the worker that took its connection."""
    certificate = make(tmp_path)
    recording = str(ROOT / "examples" / "step-audio-2.jsonl")
    played = ("--replay", recording, "--format", "step-audio-2", "--chat-template", "step-audio-2")
    tls = ("--tls-cert", certificate.certificate, "--tls-key", certificate.key)

    async def converse(url: str) -> list[str]:
        async with websockets.connect(url, ssl=trusting(certificate), max_size=None) as socket:
            client = Client(socket)
            await client.until("session.created")
            session = {"type": "realtime", "tools": [TOOL], "output_modalities": ["text"]}
            await client.send("session.update", session=session)
            done = await respond(client)
            check_order(client)
            assert done["status"] == "completed", done
            return [item["type"] for item in done["output"]]

    async def tried() -> None:
        with serve(*played, *tls, "--workers", "2") as process:
            url = f"{process.url.replace('https', 'wss', 1)}/realtime?model=step-audio-2-mini"
            for found in await asyncio.gather(*(converse(url) for _ in range(SESSIONS))):
                assert "function_call" in found

    run(tried)
