"""Reports that can be filed: a page of docs/upstream/ for each kind of loss in a peer, with a script that needs that
peer alone and what the script printed.

`python -m scoreboard report [NAME]` runs the scripts, each by its peer's interpreter, and writes what they print and
the versions into the pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .peers import PEERS, ROOT, Missing, interpreter

FOLDER = ROOT / "docs" / "upstream"
PEER_OF = {"vllm": "vllm", "sglang": "sglang", "xgrammar": "vllm", "llama": "unbraid"}
"""Whose interpreter runs the script of a page, by the first word of its name. llama.cpp's wheel is in our own."""
_SCRIPT = re.compile(r"```python\n(.*?)```\n", re.DOTALL)
_CAME = "## What came\n\n```text\n"


def pages() -> list[Path]:
    return [path for path in sorted(FOLDER.glob("*.md")) if path.name != "index.md"]


def script_of(page: str) -> str:
    (script,) = _SCRIPT.findall(page)
    return str(script)


def report(name: str | None) -> int:
    """Run the script of a page, or of all, and write what it prints into the page."""
    chosen = [path for path in pages() if name in (None, path.stem)]
    if not chosen:
        print(f"no such report: {name}; there are {', '.join(path.stem for path in pages())}", file=sys.stderr)
        return 2
    for path in chosen:
        page = path.read_text(encoding="utf-8")
        try:
            output = _run(interpreter(PEERS[PEER_OF[path.stem.partition("-")[0]]]), script_of(page))
        except (Missing, subprocess.SubprocessError) as error:
            print(f"{path.stem}: {error}", file=sys.stderr)
            return 1
        head, _, rest = page.partition(_CAME)
        path.write_text(f"{head}{_CAME}{output}{rest[rest.index('```') :]}", encoding="utf-8")
        print(f"{path.stem}:\n{output}")
    return 0


def _run(python: Path, script: str) -> str:
    """What it prints, without what the library logs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reproduce.py"
        file.write_text(script, encoding="utf-8")
        quiet = {**os.environ, "VLLM_LOGGING_LEVEL": "CRITICAL", "PYTHONPATH": ""}
        done = subprocess.run(
            [str(python), str(file)], capture_output=True, text=True, timeout=600, cwd=folder, env=quiet, check=False
        )
    if done.returncode:
        raise subprocess.SubprocessError(f"the script fails: {done.stderr.strip()[-1000:]}")
    return done.stdout
