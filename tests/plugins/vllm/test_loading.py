"""How vLLM loads the plug-in, and what it says without a fitting vLLM. vLLM is not needed."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from ...support.places import ROOT


def test_vllm_is_not_imported() -> None:
    code = "import sys, unbraid, unbraid.plugins; print(any(name.partition('.')[0] == 'vllm' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout == "False\n"


def test_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["entry-points"]["vllm.general_plugins"]["unbraid"].partition(":")
    assert module == "unbraid.plugins.vllm"
    assert f"def {function}()" in (ROOT / module.replace(".", "/") / "__init__.py").read_text()


def test_without_vllm_it_says_so() -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(ImportError, match=r"not installed: pip install 'vllm>=0\.32,<0\.33'"):
        importlib.import_module("unbraid.plugins.vllm").register()


def test_with_another_vllm_it_says_so(tmp_path: Path) -> None:
    """One that has none of the modules."""
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    metadata = tmp_path / "vllm-0.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.2\n")
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]"
    code = f"{path}; import unbraid.plugins.vllm as plugin; plugin.register()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "made for vllm>=0.32,<0.33, and this vLLM (0.2) does not fit: " in done.stderr
    assert "vllm.tool_parsers.utils cannot be imported (No module named 'vllm.tool_parsers')" in done.stderr
