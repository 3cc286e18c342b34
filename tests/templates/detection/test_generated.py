"""Detection: what is verified is true. Random templates, and turns that detection has not seen."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

import unbraid
from unbraid.format_checks import check

from ...support.examples import examples
from .made_templates import USER, MadeTemplate, made_templates

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "It does things.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "a text"},
                    "count": {"type": "integer", "description": "a number"},
                    "sure": {"type": "boolean", "description": "whether"},
                    "items": {"type": "array", "items": {}, "description": "a list"},
                    "tree": {"type": "object", "additionalProperties": True, "description": "a tree"},
                },
            },
        },
    }
    for name in ("look_up", "send-mail", "f")
]

_words = st.sampled_from(
    ["Paris", "é", "日本語", "😀", "a & b", "1 < 2", "x > y", "&amp;", "50%", "né à", "…", "-", "it's"]
)
_texts = st.lists(_words, min_size=1, max_size=4).map(" ".join)
_leaves = _texts | st.integers(-(10**6), 10**6) | st.booleans() | st.floats(-1000, 1000).map(lambda n: round(n, 2))
_trees = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=2),
    max_leaves=4,
)
_arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": _texts,
        "count": st.integers(-999, 999),
        "sure": st.booleans(),
        "items": st.lists(_trees, max_size=3),
        "tree": st.dictionaries(_words, _trees, max_size=2),
    },
)
_calls = st.lists(st.tuples(st.sampled_from(["look_up", "send-mail", "f"]), _arguments), max_size=3)
_turns = st.tuples(st.just("") | _texts, st.just("") | _texts, _calls).filter(any)


def openai_calls(calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"id": f"call{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]


@examples(3)  # a third of what is drawn is verified
@given(made_templates(), st.data())
def test_what_is_verified_reads_every_turn(made: MadeTemplate, data: st.DataObject) -> None:
    """Every strand that the template writes comes back, in turns and with tools that detection has not tried."""
    found = unbraid.detect(made.source())
    assert found.reasons
    assume(found.verified)
    format = found.required()
    if found.how == "derived":
        check(format)  # it can be registered
    template = made.template()
    for reasoning, content, calls in data.draw(st.lists(_turns, min_size=3, max_size=6)):
        message = made.message(reasoning, content, openai_calls(calls))
        whole = template.render([USER, message], tools=TOOLS, add_generation_prompt=False)
        start = template.render([USER], tools=TOOLS, add_generation_prompt=False)
        prompt = start + made.prompt()
        if not whole.startswith(prompt):
            prompt = start + made.header()
        assert whole.startswith(prompt)
        parser = unbraid.Parser(format, tools=TOOLS, prompt=prompt)
        parser.feed(whole.removeprefix(prompt).removesuffix(made.turn[1]))
        parser.finish(end_of_turn=True)
        back = parser.message
        written = "" if calls and not made.content_before_calls else content
        assert back.content.strip() == written
        assert back.reasoning.strip() == (reasoning if made.reasoning is not None else "")
        assert [(call.name, json.loads(call.arguments)) for call in back.tool_calls] == calls
        assert all(call.complete for call in back.tool_calls)
