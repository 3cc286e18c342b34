"""How vLLM loads the plug-in, and what it says without a fitting vLLM. vLLM is not needed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from unbraid.plugins import vllm as plugin

from ...support.places import ROOT


def test_vllm_is_not_imported() -> None:
    code = "import sys, unbraid, unbraid.plugins; print(any(name.partition('.')[0] == 'vllm' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"


def test_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["entry-points"]["vllm.general_plugins"]["unbraid"].partition(":")
    assert getattr(importlib.import_module(module), function) is plugin.register


def test_without_vllm_it_says_so() -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    said = r"not installed: pip install 'vllm>=0\.30,<0\.33'"
    with pytest.raises(ImportError, match=said):
        plugin.register(required=True)


REGISTRY = "class ToolParserManager:\n    tool_parsers = {}\n    lazy_parsers = {}\n"


def run_with_another_vllm(
    folder: Path, registry: str | None, asked: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Code in a process with a vLLM 0.2 of which there is nothing, or a registry."""
    package, metadata = folder / "vllm", folder / "vllm-0.2.dist-info"
    (package / "tool_parsers").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    if registry is not None:
        (package / "tool_parsers" / "abstract_tool_parser.py").write_text(registry)
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.2\n")
    path = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]"
    code = f"{path}; import unbraid.plugins.vllm as plugin; {asked}"
    variables = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)


@pytest.mark.parametrize(
    ("name", "replace"), [("unbraid-hermes", ""), ("unbraid-hermes", "1"), ("hermes", "1"), ("hermes", "")]
)
def test_no_other_parser_runs_in_place_of_ours(tmp_path: Path, name: str, replace: str) -> None:
    """With a vLLM that does not fit, whoever asks for ours gets an error; vLLM's own is there for those who do not."""
    asked = (
        "plugin.register(); from vllm.tool_parsers.abstract_tool_parser import ToolParserManager as M; "
        f"print({name!r} in list(M.lazy_parsers.keys())); print(M.lazy_parsers[{name!r}])"
    )
    registry = "class ToolParserManager:\n    tool_parsers = {}\n    lazy_parsers = {'hermes': ('a', 'b')}\n"
    done = run_with_another_vllm(tmp_path, registry, asked, UNBRAID_VLLM_REPLACE=replace)
    if name == "hermes" and not replace:
        assert done.stdout == "True\n('a', 'b')\n", done.stderr
    else:
        assert done.stdout == "True\n", done.stderr
        assert f"ImportError: {name}: unbraid's plug-in is made for vllm>=0.30,<0.33" in done.stderr


@pytest.mark.parametrize(
    ("registry", "asked"),
    [
        (None, "plugin.register(required=True)"),
        (REGISTRY, "plugin.register(); from vllm.tool_parsers.abstract_tool_parser import ToolParserManager as M; "
         "print('hermes' in M.lazy_parsers, 'unbraid-hermes' in M.lazy_parsers)"),
        ("class ToolParserManager: pass", "plugin.register(); import vllm.tool_parsers.abstract_tool_parser"),
    ],
    ids=["asked for as a file", "asked for by name", "nothing is as expected"],
)  # fmt: skip
def test_with_another_vllm_it_says_so(tmp_path: Path, registry: str | None, asked: str) -> None:
    """In one line. Our names are listed, so that whoever asks for a parser is told; vLLM's own are not touched."""
    done = run_with_another_vllm(tmp_path, registry, asked)
    assert done.returncode == int(registry is None)
    [said] = [line for line in done.stderr.splitlines() if "does not fit" in line]
    assert "made for vllm>=0.30,<0.33, and this vLLM (0.2) does not fit: " in said
    assert "vllm.tool_parsers.utils cannot be imported (No module named 'vllm.tool_parsers.utils')" in said
    assert ("Traceback" in done.stderr) is (registry is None)
    assert done.stdout == ("False True\n" if registry is REGISTRY else "")


LOADED = """
import sys
sys.path.insert(0, {root!r})
import unbraid.plugins.vllm
unbraid.plugins.vllm.register()
def ours():
    print(*sorted(name for name in sys.modules if name.startswith("unbraid") or name.startswith("vllm")))
ours()
"""
FIRST = [
    "unbraid",
    "unbraid.plugins",
    "unbraid.plugins.hooks",
    "unbraid.plugins.vllm",
    "unbraid.plugins.vllm.registration",
]


def test_loading_it_loads_next_to_nothing() -> None:
    """vLLM loads it in each of its processes, and most of them parse nothing."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(root=str(ROOT))], capture_output=True, text=True)
    assert done.stdout.split() == FIRST, done.stderr


ASKED = (
    LOADED
    + """
from vllm.tool_parsers import ToolParserManager
from vllm.reasoning import ReasoningParserManager
import vllm.parser.parser_manager
ToolParserManager.get_tool_parser("hermes")
ReasoningParserManager.get_reasoning_parser("qwen3")
vllm.parser.parser_manager.ParserManager.get_parser("hermes", "qwen3", True)
print(*sorted(name for name in sys.modules if name.startswith("unbraid")))
ToolParserManager.list_registered()
print("unbraid.plugins.vllm.parsers" in sys.modules)
ToolParserManager.get_tool_parser("unbraid-hermes")
print("unbraid.plugins.vllm.parsers" in sys.modules)
"""
)


def test_beside_vllms_own_parsers_nothing_more_is_loaded() -> None:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make test-engines")
    done = subprocess.run([sys.executable, "-c", ASKED.format(root=str(ROOT))], capture_output=True, text=True)
    *_, loaded, listed, asked = done.stdout.splitlines()
    assert loaded.split() == FIRST, done.stderr
    assert (listed, asked) == ("False", "True")
