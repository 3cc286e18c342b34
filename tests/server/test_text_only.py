"""`unbraid serve` without the packages of speech: text is served, and what is missing is said where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ..support.places import ROOT
from ..support.serve_process import serve

pytestmark = pytest.mark.system

RECORDING = str(ROOT / "examples" / "step-audio-2.jsonl")
BLOCKED = ("numpy", "av", "onnxruntime")

# Python runs a sitecustomize.py on its path when it starts.
BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def blocked(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which these packages cannot be imported."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    return {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


@pytest.mark.parametrize("package", BLOCKED)
def test_the_packages_are_blocked(blocked: dict[str, str], package: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import {package}"], env={**os.environ, **blocked}, capture_output=True, timeout=120
    )
    assert b"ModuleNotFoundError" in found.stderr


def test_text_is_served(blocked: dict[str, str]) -> None:
    with serve("--replay", RECORDING, **blocked) as server:
        reply = server.chat()
        assert reply.status_code == 200
        assert reply.json()["choices"][0]["message"]["content"]
        assert httpx.get(f"{server.url.removesuffix('/v1')}/openapi.json", timeout=60).status_code == 200
        for path in ("transcriptions", "translations"):
            refused = httpx.post(f"{server.url}/audio/{path}", files={"file": b"RIFF"}, timeout=60)
            assert refused.status_code == 404
            assert "--transcription-model" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("flags", "packages"),
    [
        (("--transcription-model", "whisper-tiny"), "numpy, av, onnxruntime"),
        (("--transcription-engine", "openai", "--transcription-url", "http://127.0.0.1:9"), "numpy, av"),
    ],
)
def test_what_is_missing_is_said_at_the_start(blocked: dict[str, str], flags: tuple[str, ...], packages: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unbraid", "serve", "--port", "0", "--replay", RECORDING, *flags],
        env={**os.environ, **blocked},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert f"transcription needs {packages}, which cannot be imported: pip install 'unbraid[speech]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_transcribe_says_what_is_missing(blocked: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "talk.wav").touch()
    done = subprocess.run(
        [sys.executable, "-m", "unbraid", "transcribe", str(tmp_path / "talk.wav")],
        env={**os.environ, **blocked},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "pip install 'unbraid[speech]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_only_chats_imports_nothing_of_speech() -> None:
    """Nor do the other commands."""
    code = (
        "import sys; from unbraid.cli import main; main(['formats']); import unbraid.server.app; "
        "import unbraid.server.loading.service; import unbraid.server.running.run; "
        "print([name for name in sys.modules if name.startswith('unbraid.speech')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr.strip().splitlines()[-1] == "[]"
