"""Required and named calls: our grammar refuses what that of vLLM's own parser refuses, and takes what is right."""

from __future__ import annotations

import json
from typing import Any

import unbraid
from unbraid import Format
from unbraid.plugins.vllm.registration import format_of

from ...constraints.grammar_engines import XGrammarGrammar
from ..test_required import ARGUMENTS, FOLLOWED, NAMED, TOOL, rendered
from .cases import every_format_with_tools, tokenizer_for
from .server import ParserManager, ToolParserManager, chat

TOOLS = [{"type": "function", "function": TOOL}]


def asked(name: str, tokenizer: Any, choice: Any) -> Any:
    """What vLLM is asked to enforce by the parser of that name."""
    request = chat(tools=TOOLS, tool_choice=choice)
    parser = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True)(tokenizer, request.tools)
    return parser.adjust_request(request).structured_outputs


@every_format_with_tools
def test_ours_follows_the_schema(format: Format) -> None:
    from unbraid.plugins.vllm.combined_parser import NoTokens  # imports vLLM

    begin = "" if format.reasoning is None or format.headers is not None or not format.prompt else "Hm."
    before = begin and format.reasoning and f"{begin}{format.reasoning.close}"
    for choice in ("required", NAMED):
        tag = asked(f"unbraid-{format.name}", NoTokens(), choice).structural_tag
        grammar = XGrammarGrammar.from_structural_tag(json.loads(tag))
        text = {name: rendered(format, each) for name, each in ARGUMENTS.items()}
        if format.headers is not None:
            text = {name: each.removeprefix(format.prompt) for name, each in text.items()}
        assert {name: grammar.accepts(f"{before}{each}") for name, each in text.items()} == FOLLOWED, choice


def theirs() -> list[str]:
    """vLLM's parsers that ask for plain JSON; the others take no tokenizer without their tokens, or ask for tags."""
    names = []
    for name in sorted(ToolParserManager.lazy_parsers.theirs):
        if (format := format_of(name, "tools")) is not None:
            try:
                outputs = asked(name, tokenizer_for(format), "required")
            except (RuntimeError, ImportError):
                continue
            names += [name] if outputs is not None and outputs.json is not None else []
    return names


def test_so_does_vllms_own() -> None:
    """The fifteen that the plug-in once fell behind are among these."""
    names = theirs()
    assert len(names) >= 15
    for name in names:
        schema = asked(name, tokenizer_for(unbraid.find(name)), "required").json
        grammar = XGrammarGrammar.from_json_schema(schema if isinstance(schema, dict) else json.loads(schema))
        text = {name: json.dumps([{"name": "get_weather", "parameters": each}]) for name, each in ARGUMENTS.items()}
        assert {name: grammar.accepts(each) for name, each in text.items()} == FOLLOWED, name
