"""Our parsers in vLLM's registries, and how vLLM makes one parser of two."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any, get_args

import pytest

import unbraid
from unbraid.plugins.vllm.registration import PASSED_ON, REPLACE, Kind

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


MANAGERS: dict[Kind, Any] = {"tools": ToolParserManager, "reasoning": ReasoningParserManager}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_name_of_vllms_works_with_the_prefix(kind: Kind) -> None:
    """If this fails, vLLM has a name that no format has: add it to a format, or to `PASSED_ON` with the reason."""
    own = [name for name in MANAGERS[kind].list_registered() if not name.startswith("unbraid-")]
    assert len(own) > 30
    for name in own:
        made = get(kind, f"unbraid-{name}")
        assert made.__module__.startswith("unbraid.") is (name not in PASSED_ON)
        assert get(kind, name).__module__.startswith("vllm.")


def get(kind: Kind, name: str) -> Any:
    manager = MANAGERS[kind]
    return manager.get_tool_parser(name) if kind == "tools" else manager.get_reasoning_parser(name)


def test_in_the_place_of_vllms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = importlib.import_module("unbraid.plugins.vllm")
    with monkeypatch.context() as patch:
        patch.setenv(REPLACE, "1")
        plugin.register()
        for kind in get_args(Kind):
            for name in MANAGERS[kind].list_registered():
                bare = name.removeprefix("unbraid-")
                assert get(kind, name).__module__.startswith("unbraid.") is (bare not in PASSED_ON)
        pairs = (("hermes", "qwen3"), ("kimi_k3", "kimi_k3"), ("cohere_command4", None), (None, "minicpmv"))
        for tool, reasoning in pairs:
            assert issubclass(composed.__wrapped__(tool, reasoning, qwen3()), CombinedParser)
    plugin.register()
    assert get("tools", "hermes").__module__.startswith("vllm.")


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
