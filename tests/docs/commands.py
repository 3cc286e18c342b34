"""Checks commands that cannot be run here: that every program, flag, target and file that they name is there.

vLLM's and SGLang's flags are checked against their own parsers where these are installed, which is what
`make test-engines` is for. Without them the rest of the line is checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache

import unbraid
from unbraid.server.settings_sources import settings_of

from ..support.places import ROOT
from .running import environment

_FLAG = re.compile(r"--[a-z][a-z0-9-]*")


def check(command: str) -> None:
    """Raises AssertionError with what is wrong."""
    words = shlex.split(command, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if words[:2] == ["python", "-m"] and words[2] in ("pip", "unbraid"):
        words = words[2:]
    program = words[0].rpartition("/")[2]
    assert program in _PROGRAMS, f"no way to check `{program}` is known"
    _PROGRAMS[program](words[1:])


def _unbraid(words: Sequence[str]) -> None:
    known = _flags_of(words[0])
    for flag in _flags(words):
        assert flag in known, f"`unbraid {words[0]}` has no {flag}"


@cache
def _flags_of(command: str) -> frozenset[str]:
    done = subprocess.run(
        [sys.executable, "-m", "unbraid", command, "--help"], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, f"there is no `unbraid {command}`"
    return frozenset(_FLAG.findall(done.stdout))


def _make(words: Sequence[str]) -> None:
    done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _pip(words: Sequence[str]) -> None:
    assert words[0] == "install", f"`pip {words[0]}`?"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for word in words[1:]:
        if word.startswith("-"):
            continue
        place, _, names = word.partition("[")
        if f"\n{place}==" in (ROOT / "requirements" / "test.txt").read_text(encoding="utf-8"):
            continue  # another's package, which the tests have
        assert place in (".", "unbraid") or (ROOT / place).exists(), f"nothing to install at {place}"
        for name in filter(None, names.rstrip("]").split(",")):
            assert name in extras, f"there is no extra {name}"


def _python(words: Sequence[str]) -> None:
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]), f"there is no module {words[1]}"
        if words[1] == "unbraid.plugins.sglang":
            rest = [word for word in words[2:] if word != "--replace"]
            _sglang(rest)
        return
    script = ROOT / words[0]
    assert script.is_file(), f"there is no {words[0]}"
    # A script that is spread over several modules has its flags in any of them.
    source = "".join(path.read_text(encoding="utf-8") for path in script.parent.glob("*.py"))
    for flag in _flags(words):
        assert f'"{flag}"' in source, f"{words[0]} has no {flag}"


def _serve(words: Sequence[str]) -> None:
    """Ray Serve's command, with an application of ours."""
    assert words[0] == "run", f"`serve {words[0]}`?"
    module, _, name = words[1].partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    settings_of(dict(word.split("=", 1) for word in words[2:]), {})


def _deploy(words: Sequence[str]) -> None:
    """Container tools and kubectl: the files that they are told to read are there."""
    missing = [word for word in words if word.startswith("deploy/") and not (ROOT / word).exists()]
    assert not missing, f"there is no {missing}"


def _vllm(words: Sequence[str]) -> None:
    _parsers_exist(words)
    if importlib.util.find_spec("vllm"):
        _every_flag(words, _vllm_flags())


def _sglang(words: Sequence[str]) -> None:
    _parsers_exist(words)
    if importlib.util.find_spec("sglang"):
        _every_flag(words, _sglang_flags())


def _every_flag(words: Sequence[str], known: frozenset[str]) -> None:
    unknown = [flag for flag in _flags(words) if flag not in known]
    assert not unknown, f"no such flags: {unknown}"


@cache
def _vllm_flags() -> frozenset[str]:
    return _options(
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "parser = make_arg_parser(FlexibleArgumentParser())\n"
    )


@cache
def _sglang_flags() -> frozenset[str]:
    return _options(
        "import argparse\n"
        "from sglang.srt.server_args import ServerArgs\n"
        "parser = argparse.ArgumentParser()\n"
        "ServerArgs.add_cli_args(parser)\n"
    )


def _options(script: str) -> frozenset[str]:
    """The flags of a parser that a script makes, in a process of its own: these packages take over what they are in."""
    script += "print(*(flag for action in parser._actions for flag in action.option_strings))"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return frozenset(done.stdout.split())


def _parsers_exist(words: Sequence[str]) -> None:
    """The names of ours, and the files that are given for them."""
    for flag, value in itertools.pairwise(words):
        if flag in ("--tool-call-parser", "--reasoning-parser") and value.startswith("unbraid-"):
            unbraid.find(value.removeprefix("unbraid-"))
        if flag.endswith("-plugin"):
            assert (ROOT / value).is_file(), f"there is no {value}"


def _flags(words: Sequence[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if _FLAG.match(word)]


_PROGRAMS: dict[str, Callable[[Sequence[str]], None]] = {
    "curl": lambda words: None,
    "docker": _deploy,
    "kubectl": _deploy,
    "make": _make,
    "pip": _pip,
    "podman": _deploy,
    "pre-commit": lambda words: None,
    "python": _python,
    "serve": _serve,
    "sglang": _sglang,
    "unbraid": _unbraid,
    "vllm": _vllm,
}
