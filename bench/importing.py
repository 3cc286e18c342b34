"""What `import unbraid` costs in this checkout against another one, in one run: the two take turns.

git worktree add /tmp/before HEAD~20
python bench/importing.py /tmp/before
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TURNS = 20
CODE = """
import sys, time
sys.path.insert(0, {root!r})
start = time.process_time()
import unbraid
print(time.process_time() - start)
"""


def measure(root: Path, cache: str) -> float:
    """Seconds of processor time, the interpreter's own start aside. The byte code is in `cache`."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = CODE.format(root=str(root))
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    other = Path(sys.argv[1]).resolve()
    if not (other / "unbraid").is_dir():
        sys.exit(f"{other} is no checkout of unbraid")
    best = {HERE: 9.0, other: 9.0}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(TURNS):
            for root in best:
                best[root] = min(best[root], measure(root, cache))
    here, there = best[HERE], best[other]
    print(f"import unbraid: {there * 1e3:.0f} ms there, {here * 1e3:.0f} ms here: {here / there:.2f}")


if __name__ == "__main__":
    main()
