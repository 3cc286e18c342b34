"""The engines' own tests, with their parsers and with ours: what passes with theirs must pass with ours.

    make test-peers
    .venv-vllm/bin/python tests/peers/run.py vllm -k hermes      # one suite, and arguments for pytest

There are three suites: vLLM's tests, SGLang's, and vLLM's recorded samples (`vllm_samples.py`).

vLLM's tests are in its sdist, which is fetched with pip's own settings. SGLang has no sdist any more and its wheels
have no tests: name a checkout of SGLang in UNBRAID_SGLANG_SOURCE to have its tests run; they are left out without it.

Each suite runs twice, at the same time, and pytest's reports are compared. A test that fails only with ours is a
difference. It is allowed if `tests/peer_differences.toml` names it, with the reason. An entry that no longer differs
must go, so the list says what is true. A difference by choice names the setting by which an operator chooses otherwise:
with that, its tests must pass, which is a third and short run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = ROOT / ".peers"
DIFFERENCES = ROOT / "tests" / "peer_differences.toml"
SGLANG_SOURCE = "UNBRAID_SGLANG_SOURCE"


@dataclass(frozen=True)
class Suite:
    """Tests of one engine."""

    name: str
    folders: tuple[str, ...]
    """What is run."""
    left_out: tuple[str, ...] = ()
    """Files that need the rest of the suite to be imported."""
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Tests that touch a parser and are not run, and why: files, or folders."""
    touches: str = ""
    """A pattern that is in every test that touches a parser."""
    ours: bool = False
    """Whether they stand in this folder, and only read what the engine's tests hold."""


_SERVER = "starts a server with a model from a hub"
_MODEL = "runs a model from a hub"
_SERVING = "vLLM's server with a mocked engine; of the parsers it asks only what tests/parser does"
_NAMES = "names parsers in settings, comments or requests, and calls none"

SUITES = {
    "vllm": Suite(
        "vllm",
        (
            "tests/tool_parsers",
            "tests/reasoning",
            *(f"tests/parser/test_{name}.py" for name in ("parse", "streaming", "include_reasoning", "chat_parsing")),
            *(f"tests/parser/test_{name}.py" for name in ("abstract_parser", "response_template")),
            "tests/parser/cohere",
            "tests/parser/mistral",
            *(f"tests/tool_use/test_{name}.py" for name in ("kimi_k3_tool_parser", "muse_glimmer")),
            *(f"tests/tool_use/test_{name}.py" for name in ("muse_glimmer_parse_delta", "tool_choice_required")),
            "tests/tool_use/test_gemma4_responses_adjust_request.py",
            "tests/entrypoints/openai/test_tool_choice_content_none.py",
        ),
        ("tests/conftest.py", "tests/tool_use/conftest.py"),
        {
            "tests/entrypoints/cli/test_serve.py": "the command line; its parsers are mocks",
            "tests/entrypoints/cohere": "routes of an API; its parsers are mocks",
            "tests/entrypoints/launchers": _NAMES,
            "tests/entrypoints/llm/test_struct_output_generate.py": _MODEL,
            "tests/entrypoints/openai/chat_completion": _SERVING,
            "tests/entrypoints/openai/responses": _SERVING,
            "tests/entrypoints/openai/test_render_parity.py": _NAMES,
            "tests/entrypoints/scale_out/derender/test_derender_stream.py": _SERVING,
            "tests/entrypoints/scale_out/render": _NAMES,
            "tests/entrypoints/scale_out/token_in_token_out": _NAMES,
            "tests/entrypoints/tool_parsers": _SERVER,
            "tests/entrypoints/unit_tests/test_context.py": "contexts of gpt-oss, which vLLM's server parses by itself",
            "tests/models": _MODEL,
            "tests/parser/engine": "vLLM's own parsing engine; `vllm-samples` reads its samples with ours",
            "tests/parser/test_harmony.py": "the class that vLLM's server takes for gpt-oss, beside any parser",
            "tests/tool_use/mistral": _SERVER,
            "tests/v1/spec_decode": "speculative decoding; its reasoning parser is a mock",
            "tests/v1/structured_output": "vLLM's engine; its reasoning parsers are mocks",
        },
        r"vllm\.(?:tool_parsers|reasoning|parser)\b|(?:tool|reasoning)_parser|(?:Tool|Reasoning)Parser",
    ),
    "sglang": Suite(
        "sglang",
        (
            "test/registered/function_call",
            "test/registered/unit/function_call",
            *(
                f"test/registered/unit/parser/test_{name}.py"
                for name in ("reasoning_parser", "kimik3_reasoning_parser")
            ),
            "test/registered/unit/parser/test_reasoning_content_without_parser.py",
        ),
        (),
        {
            "test/manual": _SERVER,
            "test/registered/models_e2e": _SERVER,
            "test/registered/npu": _SERVER,
            "test/registered/openai_server": _SERVER,
            "test/registered/reasoning": _SERVER,
            "test/registered/unit/constrained": "grammar backends; their reasoning parsers are mocks",
            "test/registered/unit/entrypoints": "SGLang's server, which needs its compiled parts",
            "test/registered/unit/multimodal": "needs a GPU",
            "test/registered/unit/parser/test_template_manager.py": "chat templates",
            "test/registered/unit/test_supplied_instance_exposure_ratchet.py": "the layout of SGLang's own source",
        },
        r"sglang\.srt\.function_call|\b(?:(?:function|tool)_call|reasoning)_parser\b",
    ),
    "vllm-samples": Suite("vllm-samples", ("vllm_samples.py",), ("tests/conftest.py",), ours=True),
}


def unnamed(suite: Suite, source: Path) -> list[str]:
    """The tests in an engine's source that touch a parser, and that the list does not name."""
    top = {Path(name).parts[0] for name in suite.folders}
    files = [file for name in sorted(top) for file in sorted((source / name).rglob("test_*.py"))]
    named = (*suite.folders, *suite.not_run)
    unlisted = []
    for file in files:
        path = file.relative_to(source).as_posix()
        listed = any(path == name or path.startswith(f"{name}/") for name in named)
        if not listed and re.search(suite.touches, file.read_text(encoding="utf-8")):
            unlisted.append(path)
    return unlisted


# Where the tests come from


def fetch_vllm() -> Path:
    """The folder with vLLM's tests, for the version that is installed."""
    sys.path.insert(0, str(ROOT))
    from tests.support.sdists import NoSdist, download_sdist, extract_sdist

    number = version("vllm").partition("+")[0]
    folder = HOME / f"vllm-{number}"
    if not (folder / "tests").is_dir():
        archive = HOME / f"vllm-{number}.tar.gz"
        if not archive.is_file():
            HOME.mkdir(exist_ok=True)
            (HOME / ".gitignore").write_text("*\n", encoding="utf-8")
            try:
                download_sdist("vllm", number, archive)
            except NoSdist as error:
                sys.exit(str(error))
        extract_sdist(archive, folder, "tests/")
    return folder


def fetch_sglang() -> Path | None:
    named = os.environ.get(SGLANG_SOURCE)
    if not named:
        return None
    if not (Path(named) / "test").is_dir():
        sys.exit(f"{SGLANG_SOURCE} names no checkout of SGLang: {named} has no folder `test`")
    folder = HOME / "sglang"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(named) / "test", folder / "test")
    return folder


def tokenizer() -> Path:
    """A tokenizer.json for both runs."""
    path = HOME / "tokenizer.json"
    if not path.is_file():
        HOME.mkdir(exist_ok=True)
        sys.path.insert(0, str(ROOT))
        from tests.support import real_tokenizers

        real_tokenizers.qwen3_huggingface().save(str(path))
    return path


# The runs


def prepare(suite: Suite, folder: Path) -> None:
    for name in suite.left_out:
        (folder / name).unlink(missing_ok=True)
    (HOME / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    tokenizer()


def run(
    suite: Suite, folder: Path, parsers: str, more: Sequence[str], chosen: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What became of each test: passed, skipped, failed.

    parsers: `theirs`, `ours`, or `chosen`: ours, only the tests that `chosen` names, each with its setting."""
    home = HERE if suite.ours else folder
    report = HOME / f"{suite.name}-{parsers}.xml"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (folder, HERE, ROOT))),
        "UNBRAID_PEER_SUITE": suite.name,
        "UNBRAID_PEER_TOKENIZER": str(tokenizer()),
        "HF_HUB_OFFLINE": "1",
        "VLLM_PLUGINS": "",
        "SGLANG_PLUGINS": "none",
    }
    environment.pop("UNBRAID_PEER_OURS", None)
    if parsers != "theirs":
        environment["UNBRAID_PEER_OURS"] = "1"
    environment["UNBRAID_PEER_SETTINGS"] = json.dumps(chosen or {})
    options = ["-p", "peer_plugin", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--tb=short", "-q"]
    options += [
        "-c",
        str(HOME / "pytest.ini"),
        f"--rootdir={home}",
        f"--confcutdir={home}",
    ]  # the names of the tests begin there
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *more]
    names = suite.folders if chosen is None else sorted({_file_of(home, test) for test in chosen})
    command += [name for name in names if (home / name).exists()]
    with (HOME / f"{report.stem}.log").open("w") as log:
        subprocess.run(command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT)
    if not report.is_file():
        sys.exit(f"the tests of {suite.name} could not be run; see {HOME / f'{report.stem}.log'}")
    return outcomes(report)


def _file_of(home: Path, test: str) -> str:
    """The file of a test that a report names: `tests.reasoning.test_a.TestB::test_c`."""
    parts = test.partition("::")[0].split(".")
    files = ("/".join(parts[:size]) + ".py" for size in range(len(parts), 0, -1))
    return next((file for file in files if (home / file).is_file()), "")


def outcomes(report: Path) -> dict[str, str]:
    """The tests of one of pytest's reports, and what became of each."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        name = f"{case.get('classname', '')}::{case.get('name')}"
        if kinds & {"failure", "error"}:
            found[name] = "failed"
        else:
            found.setdefault(name, "skipped" if "skipped" in kinds else "passed")
    return found


# What differs


@dataclass(frozen=True)
class Allowed:
    """Tests that may differ, and why."""

    reason: str
    tests: tuple[str, ...]
    setting: str = ""
    """How an operator chooses otherwise: `VARIABLE=word`."""

    def matching(self, name: str) -> str | None:
        """The entry that names the test: all of it, the part before its parameters, or a beginning with `*`."""
        for entry in self.tests:
            begins = entry.endswith("*") and name.startswith(entry[:-1])
            if begins or name == entry or name.startswith(f"{entry}["):
                return entry
        return None


def allowed(suite: str) -> list[Allowed]:
    table = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))
    return [Allowed(one["reason"], tuple(one["tests"]), one.get("setting", "")) for one in table.get(suite, [])]


def compare(theirs: dict[str, str], ours: dict[str, str], reasons: Iterable[Allowed]) -> tuple[list[str], list[str]]:
    """The tests that fail only with ours and are not explained, and the entries that explain nothing."""
    differ = [name for name, became in theirs.items() if became == "passed" and ours.get(name) != "passed"]
    reasons = list(reasons)
    used: set[str] = set()
    unexplained = []
    for name in differ:
        entries = [entry for one in reasons if (entry := one.matching(name)) is not None]
        used.update(entries)
        if not entries:
            unexplained.append(name)
    return unexplained, [entry for one in reasons for entry in one.tests if entry not in used]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("suite", nargs="?", choices=SUITES, help="only this one")
    chosen, more = options.parse_known_args()
    failed = False
    for name, suite in SUITES.items():
        if chosen.suite not in (None, name):
            continue
        folder = fetch_sglang() if name == "sglang" else fetch_vllm()
        if folder is None:
            print(f"{name}: left out, {SGLANG_SOURCE} names no checkout")
            continue
        lacking = [] if suite.ours else unnamed(suite, folder)
        for test in lacking:
            print(f"  touches a parser, and {Path(__file__).name} does not name it: {test}")
        prepare(suite, folder)
        reasons = allowed(name)
        settings = {test: one.setting for one in reasons if one.setting for test in one.tests} if not more else {}
        with ThreadPoolExecutor(2) as both:
            runs = [both.submit(run, suite, folder, parsers, more) for parsers in ("theirs", "ours")]
            theirs, ours = (each.result() for each in runs)
        as_chosen = run(suite, folder, "chosen", (), settings) if settings else {}
        unexplained, stale = compare(theirs, ours, reasons)
        passed = [sum(became == "passed" for became in one.values()) for one in (theirs, ours)]
        print(f"{name}: {len(theirs)} tests, {passed[0]} pass with its own parsers, {passed[1]} with ours")
        for test in unexplained:
            print(f"  passes with theirs, not with ours: {test}")
        for entry in stale if not more else ():
            print(f"  differs no longer, take it out of {DIFFERENCES.name}: {entry}")
        unmet = [test for test in settings if as_chosen.get(test) != "passed"]
        for test in unmet:
            print(f"  does not pass with {settings[test]}: {test}")
        failed = failed or bool(lacking) or bool(unmet) or bool(unexplained) or (bool(stale) and not more)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
