"""What a delta costs in this checkout against another one, in one run: the two take turns.

    git worktree add /tmp/before HEAD~20
    python bench/alternate.py /tmp/before

Prints the ratio of the two for each case, the best of all turns on each side. Above 1 this checkout is slower.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TURNS = 5
WORKER = """
import gc, json, sys, time
sys.path[:0] = [{root!r}, {bench!r}]
import cases, unbraid
best = {{}}
for case in cases.build():
    format = {{"qwen25": "qwen2.5", "mistral_v11": "mistral", "mistral_args": "mistral"}}.get(case.format, case.format)
    spent = []
    for _ in range(7):
        parser = unbraid.parser(format, tools=case.tools or None, keep_message=False)
        feed = parser.feed
        gc.collect()
        start = time.process_time()
        for delta in case.deltas:
            feed(delta)
        parser.finish()
        spent.append(time.process_time() - start)
    best[case.id] = min(spent) / len(case.deltas)
print(json.dumps(best))
"""


def measure(root: Path) -> dict[str, float]:
    """Seconds a delta, for each case, by the checkout at `root`. Both sides parse the same cases, those of this one."""
    code = WORKER.format(root=str(root), bench=str(HERE / "bench"))
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    other = Path(sys.argv[1]).resolve()
    if not (other / "unbraid").is_dir():
        sys.exit(f"{other} is no checkout of unbraid")
    sides: dict[Path, dict[str, float]] = {HERE: {}, other: {}}
    for _ in range(TURNS):
        for root, best in sides.items():
            for name, seconds in measure(root).items():
                best[name] = min(seconds, best.get(name, seconds))
    for name, here in sides[HERE].items():
        there = sides[other][name]
        print(f"{name:32} {there * 1e6:7.2f} µs  {here * 1e6:7.2f} µs  {here / there:5.2f}")


if __name__ == "__main__":
    main()
