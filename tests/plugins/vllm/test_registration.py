"""Our parsers in vLLM's registries, and how vLLM makes one parser of two."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import unbraid

from ...support.places import ROOT
from .cases import (
    qwen3,
)
from .server import (
    CombinedParser,
    DelegatingParser,
    HarmonyParser,
    ParserManager,
    ReasoningParserManager,
    ToolParserManager,
    composed,
)


def test_every_format_is_known_by_every_name() -> None:
    for format, aliases in unbraid.all_formats().items():
        for name in (format.name, *aliases):
            for manager, has in ((ToolParserManager, format.tools), (ReasoningParserManager, format.reasoning)):
                assert (f"unbraid-{name}" in manager.list_registered()) is (has is not None)


def test_one_parser_of_the_two() -> None:
    tokenizer = qwen3()
    importlib.import_module("unbraid.plugins.vllm").register()  # a second time changes nothing
    for tool, reasoning, whole in (
        ("unbraid-hermes", "unbraid-deepseek-r1", True),
        ("unbraid-hermes", None, True),
        (None, "unbraid-qwen3", True),
        ("unbraid-hermes", "qwen3", False),
        ("hermes", "unbraid-qwen3", False),
        ("hermes", "qwen3", False),
    ):
        made = composed(tool, reasoning, tokenizer)
        assert issubclass(made, DelegatingParser)
        assert issubclass(made, CombinedParser) is whole
        assert sum(issubclass(base, CombinedParser) for base in made.__mro__) == (2 if whole else 0)
    assert ParserManager.get_parser() is None


def test_a_parser_that_the_server_relies_on_stays() -> None:
    """For gpt-oss vLLM takes the outputs apart by itself."""
    made = ParserManager.get_parser("unbraid-hermes", "unbraid-harmony", True, is_harmony=True)
    try:
        assert made is HarmonyParser
    finally:
        HarmonyParser.tool_parser_cls = HarmonyParser.reasoning_parser_cls = None


def test_what_others_make_of_our_parsers_is_theirs() -> None:
    parts = {"tool_parser_cls": ToolParserManager.get_tool_parser("unbraid-hermes")}
    assert type("Own", (DelegatingParser,), parts).__bases__ == (DelegatingParser,)


def test_a_tokenizer_without_the_tokens_is_refused_at_the_start() -> None:
    with pytest.raises(TypeError, match="needs tokens that this tokenizer does not have: <tts_start>"):
        composed("unbraid-step-audio-2", None, qwen3())


LOADED_AS_A_FILE = """
import sys
from vllm.tool_parsers import ToolParserManager
from vllm.reasoning import ReasoningParserManager
ToolParserManager.import_tool_parser("unbraid/plugins/vllm/plugin.py")
ReasoningParserManager.import_reasoning_parser("unbraid/plugins/vllm/plugin.py")
assert "unbraid-hermes" in ToolParserManager.list_registered()
assert "unbraid-qwen3" in ReasoningParserManager.list_registered()
assert "vllm.logits_process" not in sys.modules
import vllm, vllm.logits_process
assert vllm.tool_parsers.ToolParserManager is ToolParserManager
print(vllm.__version__, sys.modules["unbraid"].__file__)
"""


def test_loaded_as_a_file() -> None:
    """As by `--tool-parser-plugin unbraid/plugins/vllm/plugin.py`."""
    command = [sys.executable, "-I", "-c", LOADED_AS_A_FILE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split()[1:] == [str(ROOT / "unbraid" / "__init__.py")], done.stderr
