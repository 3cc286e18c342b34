"""What SGLang is asked to enforce can be read back."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import unbraid
from unbraid import Message, ToolCall
from unbraid.plugins import sglang as plugin

from .cases import tools


@pytest.mark.parametrize("name", ["step_audio_2", "unbraid-qwen3", "unbraid-mistral-v3", "unbraid-mistral-v13"])
def test_what_is_constrained_is_read(installed: Any, name: str) -> None:
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    from ...constraints.grammar_engines import XGrammarGrammar

    known = tools(installed, strict=True)
    parser = installed.FunctionCallParser(known, name)
    assert parser.owns_tool_format()
    format = unbraid.find(name.removeprefix("unbraid-"))
    one, other = (ToolCall(name, '{"city": "Paris"}', "abcdefghi") for name in ("get_weather", "search"))

    def accepts(choice: Any, *calls: ToolCall, before: str = "", parallel: bool = True) -> bool:
        kind, tag = parser.get_structure_constraint(choice, parallel_tool_calls=parallel)
        assert kind == "structural_tag"
        sent = json.loads(installed.convert_json_schema_to_str(tag.model_dump(by_alias=True)))
        text = before + unbraid.render(unbraid.compose(tools=format.name), Message(calls))
        return XGrammarGrammar.from_structural_tag(sent).accepts(text)

    assert accepts("required", one, other)
    assert not accepts("required", one, other, parallel=False)
    assert not accepts("required", one, before="Well. ")
    assert accepts("auto", one, before="Well. ")
    named = installed.ToolChoice(type="function", function={"name": "search"})
    assert accepts(named, other)
    assert not accepts(named, one)
    wrong = ToolCall("search", '{"city": 3}', "abcdefghi")
    assert not accepts("required", wrong)


def test_a_schema_that_cannot_be_enforced(installed: Any) -> None:
    """A call is required all the same, and in the format that is read."""
    pytest.importorskip("xgrammar", reason="xgrammar needs torch: `make test-engines` has both")
    schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
    function = {"name": "f", "parameters": schema, "strict": True}
    parser = installed.FunctionCallParser([installed.Tool(type="function", function=function)], "step_audio_2")
    kind, tag = parser.get_structure_constraint("required")
    assert kind == "structural_tag"
    assert "<tool_call>" in tag.model_dump_json()


def test_without_xgrammar_sglang_asks_for_json(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["unbraid.plugins.sglang.detectors"], "HAS_TAGS", False)
    parser = installed.FunctionCallParser(tools(installed), "step_audio_2")
    assert not parser.owns_tool_format()
    assert parser.get_structure_constraint("required")[0] == "json_schema"


@pytest.mark.parametrize("name", ["hermes", "qwen25", "mistral"])
def test_what_sglang_constrains_is_read(sglang: Any, name: str) -> None:
    """Detectors that took another's place still have its grammar."""
    plugin.install(replace=True)
    known = tools(sglang)
    parser = sglang.FunctionCallParser(known, name)
    for tag in parser.get_legacy_structural_tag(at_least_one=True).structures:
        content, [call] = sglang.FunctionCallParser(known, name).parse_non_stream(
            f'{tag.begin}{{"city": "a"}}{tag.end}'
        )
        assert (content, call.parameters) == ("", '{"city": "a"}')
