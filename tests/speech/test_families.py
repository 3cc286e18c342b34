"""The families of speech models; and one of another package, which is installed with an entry point and used by the
command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unbraid import UnbraidError
from unbraid.speech.families import register
from unbraid.speech.loading import load_embedded

from ..support.places import ROOT
from ..support.real_speech import recording
from ..support.waiting import PATIENCE

pytest.importorskip("av", reason="av is not installed: pip install av")

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "unbraid-parrot"
version = "1.0"

[project.entry-points."unbraid.speech_families"]
parrot = "unbraid_parrot:register"
broken = "unbraid_parrot:missing"
"""

# A family that says how long what it heard is, in markup of its own.
PARROT = """
from unbraid.core.grammar import Format, TranscriptMarkup
from unbraid.engines.base import Piece
from unbraid.speech import families
from unbraid.speech.listening import ListenEnd, ListenRequest

MARKUP = TranscriptMarkup(("english", "french"), times=0, tag="[{}]", tasks=(), timeless="none")
FORMAT = Format("parrot", transcript=MARKUP)


class Adapter:
    format = FORMAT
    max_seconds = 30.0
    supports_language_detection = True
    supports_timestamps = False
    supports_translation = False
    language = None

    def __init__(self, vocabulary=None):
        pass

    def check(self, options):
        pass

    def request(self, samples, options, temperature):
        return ListenRequest(samples=samples, prompt=())


class Listener:
    vocabulary = None
    parallel = 1
    family = "parrot"

    def __init__(self, model, threads, device):
        self.model = model or "polly"

    async def listen(self, request):
        yield Piece(text="[fre")
        yield Piece(text=f"nch]{self.model} heard {len(request.samples) / 16000:.0f} seconds.")
        yield ListenEnd("stop", 0, 3)

    async def close(self):
        pass


def register():
    families.register("parrot", Adapter, load=Listener)
"""


@pytest.mark.system
def test_a_package_brings_a_family(tmp_path: Path) -> None:
    """It is built and installed by pip, as users do it. Its broken entry point is reported, and harms nobody."""
    source, site = tmp_path / "source", tmp_path / "site"
    (source / "unbraid_parrot").mkdir(parents=True)
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "unbraid_parrot" / "__init__.py").write_text(PARROT)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-build-isolation", "--target", str(site), str(source)]
    subprocess.run(pip, check=True, timeout=PATIENCE)
    weasels = recording("en", "tt-weasels").path
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "unbraid",
            "transcribe",
            str(weasels),
            "--model",
            "parrot:",
            "--format",
            "json",
            "--no-vad",
        ],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{site}"},
        timeout=PATIENCE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["text"], found["language"]) == ("polly heard 3 seconds.", "fr")
    assert "'broken' of unbraid-parrot cannot be loaded" in done.stderr


def test_names_of_families() -> None:
    with pytest.raises(UnbraidError, match="without a colon"):
        register("a:b", lambda vocabulary: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(UnbraidError, match="do not run in this process"):
        load_embedded("qwen3-asr:Qwen/Qwen3-ASR-0.6B")


def test_models_in_this_process_need_no_http() -> None:
    """The extra `speech` does not bring httpx, which only engines elsewhere need."""
    script = "import sys; sys.modules['httpx'] = None; import unbraid.speech.families, unbraid.speech.transcriber"
    subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
