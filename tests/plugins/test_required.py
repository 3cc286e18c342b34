"""Required and named calls follow the schema of their tool, strict or not, in every format.

`vllm/test_required.py` holds the same five arguments against the grammars of vLLM's own parsers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

import unbraid
from unbraid import Format, Message, ToolCall
from unbraid.constraints import constraint
from unbraid.core.tools import Tools
from unbraid.errors import UnbraidError
from unbraid.plugins.common import following_schemas

from ..constraints.grammar_engines import LlguidanceGrammar
from .vllm.cases import every_format_with_tools

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
TOOL = {"name": "get_weather", "parameters": SCHEMA}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "good": {"city": "Rome", "days": 3},
    "missing": {"city": "Rome"},
    "none": {},
    "wrong type": {"city": "Rome", "days": "three"},
    "extra key": {"city": "Rome", "days": 3, "more": 1},
}
FOLLOWED = {name: name == "good" for name in ARGUMENTS}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


IDS = {"cohere-command-3": "0", "cohere-command-4": "0", "solar-open": "0123456789"}
"""Ids of calls where the template does not take any."""


def rendered(format: Format, arguments: dict[str, Any]) -> str:
    """A call as the format writes it, and nothing before it."""
    call = ToolCall("get_weather", json.dumps(arguments), IDS.get(format.name, "abcdefghi"))
    return unbraid.render(unbraid.compose(tools=format.name), Message((call,)))


def enforced(format: Format, tools: Iterable[dict[str, Any]], choice: Any = "required") -> LlguidanceGrammar:
    def lark(tools: Tools) -> str:
        return constraint(
            unbraid.compose(tools=format.name),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=None,
            reasoning=None,
            response_format=None,
            vocabulary=None,
            prompt="",
        ).to_lark()

    return LlguidanceGrammar(following_schemas(lark, Tools(tools)))


@every_format_with_tools
def test_required_calls_follow_the_schema(format: Format) -> None:
    grammar = enforced(format, [TOOL])
    assert {name: grammar.accepts(rendered(format, each)) for name, each in ARGUMENTS.items()} == FOLLOWED


@pytest.mark.parametrize("name", ["hermes", "kimi-k2", "qwen3-coder", "olmo-3"])
def test_so_do_named_calls(name: str) -> None:
    format = unbraid.find(name)
    grammar = enforced(format, [TOOL, {"name": "search"}], NAMED)
    assert {name: grammar.accepts(rendered(format, each)) for name, each in ARGUMENTS.items()} == FOLLOWED


NOWHERE = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}


def test_a_schema_that_cannot_be_followed_leaves_its_arguments_free(caplog: pytest.LogCaptureFixture) -> None:
    hermes = unbraid.find("hermes")
    grammar = enforced(hermes, [TOOL, {"name": "search", "parameters": NOWHERE}])
    assert "A schema is not enforced, as its tool is not strict: " in caplog.text
    assert {name: grammar.accepts(rendered(hermes, each)) for name, each in ARGUMENTS.items()} == FOLLOWED
    assert grammar.accepts(rendered(hermes, {"a": 1}).replace("get_weather", "search"))
    with pytest.raises(UnbraidError, match="#/nowhere"):
        enforced(hermes, [TOOL, {"name": "search", "parameters": NOWHERE, "strict": True}])
