"""The lists of the engines' names (`scripts/docs/engine_names.py`) are those that the installed engines have."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from scripts.docs.engine_names import NAMES, Engine

# In a process of its own: other tests put ours among theirs.
_SCRIPTS: dict[Engine, str] = {
    "vLLM": """
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
print("names", *dict(ToolParserManager.lazy_parsers.items()))
print("names", *dict(ReasoningParserManager.lazy_parsers.items()))
""",
    "SGLang": """
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser
print("names", *FunctionCallParser.ToolCallParserEnum)
print("names", *ReasoningParser.DetectorMap)
""",
}


@pytest.mark.parametrize("engine", _SCRIPTS)
def test_the_names_are_those_of_the_installed_engine(engine: Engine) -> None:
    package = engine.lower()
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    script = f"import os\nos.environ['VLLM_PLUGINS'] = ''\n{_SCRIPTS[engine]}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("names ")]
    for strand, theirs in zip(("tools", "reasoning"), lines, strict=True):
        listed = NAMES[engine, strand]  # type: ignore[index]
        assert sorted(name for name in theirs if not name.startswith("unbraid-")) == sorted(listed)
