"""A real `sglang serve` on a processor, for tests, with SmolLM2.

SGLang wants a GPU. With torch's own attention and without its compiled kernels it does without, but it imports
torchvision, whose build on PyPI is for CUDA: its Python part works beside any torch once its operators are declared.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from unbraid.models.cache import keep

from ...engines.vllm_model import checkpoint
from ...engines.vllm_process import EngineProcess, free_port, started
from ...support.places import CACHE
from ...support.system import system_only

TORCHVISION = "torchvision==0.28.0"
DECLARED = """\
import torch
_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # two that spin wait for each other where others work too
}
OPTIONS = (
    "--device=cpu",
    "--attention-backend=torch_native",
    "--cuda-graph-backend-decode=disabled",
    "--cuda-graph-backend-prefill=disabled",
    "--dtype=float32",
    "--mem-fraction-static=0.2",
    "--max-total-tokens=8192",
    "--host=127.0.0.1",
)


@contextmanager
def sglang_serve(logs: Path, flags: Sequence[str], environment: Mapping[str, str]) -> Iterator[EngineProcess]:
    """A server that answers. It runs through our command, so that it has the plug-in, installed or not."""
    system_only("a server of SGLang")
    if find_spec("sglang") is None or find_spec("torch") is None:
        pytest.skip("SGLang is not installed here: make test-engines")
    port, paths = free_port(), [str(_torchvision()), os.environ.get("PYTHONPATH", "")]
    line = [sys.executable, "-m", "unbraid.plugins.sglang", "serve", f"--model-path={checkpoint()}", f"--port={port}"]
    added = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    with started([*line, *OPTIONS, *flags], port, logs / "server.log", added) as found:
        yield found


def _torchvision() -> Path:
    return keep(CACHE / TORCHVISION.replace("==", "-"), _install)


def _install(place: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={place}", TORCHVISION]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{TORCHVISION} cannot be had here: {done.stderr[-500:]}")
    package = place / "torchvision" / "__init__.py"
    package.write_text(DECLARED + package.read_text(encoding="utf-8"), encoding="utf-8")
