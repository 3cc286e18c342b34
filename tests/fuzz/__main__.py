"""The command: `python -m tests.fuzz [--seconds 60] [target …]`, and `python -m tests.fuzz TARGET --replay FILE`.

Each target runs in a process of its own, as libFuzzer ends the process it runs in. The status is 1 if one of them found
something; the output then says how to see it again. What reaches new code is kept in `.fuzz` between runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from ..support.places import ROOT
from .search import by_chance, found, guided
from .targets.every import TARGETS, target

PLACE = ROOT / ".fuzz"
ATHERIS = importlib.util.find_spec("atheris") is not None
WITHOUT = (
    "atheris is not installed, so inputs are drawn by chance and not by what they reach. To install it, have clang (it "
    "brings libFuzzer), or LIBFUZZER_LIB=…/libclang_rt.fuzzer_no_main-….a: pip install -r requirements/atheris.txt"
)
_FOUND = "=== Uncaught Python exception: ==="
"""What atheris says before a traceback."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz unbraid.")
    parser.add_argument("targets", nargs="*", metavar="target", help="what to fuzz; all, if none is named")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each target is fuzzed")
    parser.add_argument("--replay", metavar="FILE", help="run a target once, with an input that was found")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.here:
        return search(asked.targets[0], asked.seconds)
    known = list(TARGETS)
    if unknown := [name for name in asked.targets if name not in known]:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(known)}")
    if asked.replay is not None:
        if len(asked.targets) != 1:
            parser.error("name the one target that FILE is for")
        return replay(asked.targets[0], asked.replay)
    if not ATHERIS:
        print(WITHOUT)
    return fuzz(asked.targets or known, asked.seconds)


def fuzz(targets: list[str], seconds: float) -> int:
    """Search with each target. Returns the status."""
    broken = []
    for name in targets:
        print(f"--- {name}", flush=True)
        before = finds_of(name)
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", "--here", name, "--seconds", str(seconds)]
        status = run(command)
        new = finds_of(name) - before
        for file in sorted(new):
            print(f"found: see it with  {sys.executable} -m tests.fuzz {name} --replay {file}")
        if status or new:
            broken.append(name)
    print(
        f"{len(targets)} targets, {seconds:g} s each: " + (f"{', '.join(broken)} failed" if broken else "nothing found")
    )
    return 1 if broken else 0


def run(command: list[str]) -> int:
    """Run a command. Shows how much it tried, or what it found; libFuzzer says more. Returns the status."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        print(done.stdout.partition(_FOUND)[2].partition("\n==")[0] or done.stdout + done.stderr, flush=True)
    else:
        tried = re.findall(r"(?m)^(?:stat::number_of_executed_units: *)?(\d+)(?: inputs)?$", done.stdout + done.stderr)
        print(f"{tried[-1]} inputs", flush=True)
    return done.returncode


def finds_of(name: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (PLACE / "finds" / name).glob("*")}


def search(name: str, seconds: float) -> int:
    finds = PLACE / "finds" / name
    if not ATHERIS:
        return 0 if by_chance(target(name), seconds, finds) is None else 1
    import atheris

    with atheris.instrument_imports(include=["unbraid"], enable_loader_override=False):
        tried = target(name)
        tried(b"")  # what it imports when it runs is followed, too
    finds.mkdir(parents=True, exist_ok=True)
    guided(tried, seconds, finds, PLACE / "corpus" / name)
    return 0


def replay(name: str, file: str) -> int:
    error = found(target(name), Path(file).read_bytes())
    if error is None:
        print("it passes now")
        return 0
    raise error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
