"""Tools, requests and tokenizers that the tests of constraints share."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, cast

import unbraid
import unbraid.tokens
from unbraid import (
    Format,
    Message,
)
from unbraid.constraints import schema_grammar
from unbraid.core import grammar, notations
from unbraid.core.vocabulary import WholeVocabulary
from unbraid.tokens import vocabulary as vocabulary_of

from ..core.test_token_laws import CASES
from ..support import real_tokenizers
from ..support.examples import LONG
from ..support.real_tokenizers import encode_plain

# Spellings that llguidance's own JSON does not know; each value has another.
UNKNOWN = (schema_grammar._UNICODE, schema_grammar._EXPONENT)


def whole_turn(format: str | Format, output: str | list[int], **options: Any) -> Message:
    """What a constraint accepts is a whole turn: nothing cuts it off."""
    parser = unbraid.Parser(format, **options)
    if isinstance(output, str):
        parser.feed(output)
    else:
        parser.feed_tokens(output)
    parser.finish(end_of_turn=True)
    return parser.message


def tool(name: str, strict: bool, **schema: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "strict": strict, "parameters": {"type": "object", **schema}},
    }


WEATHER = tool(
    "get_weather",
    True,
    properties={
        "city": {"type": "string"},
        "unit": {"enum": ["c", "f", None, 3]},
        "days": {"type": "integer", "minimum": -3, "maximum": 17},
        "host": {"type": "string", "format": "ipv4"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "deep": {"$ref": "#/$defs/node"},
        "ok": {"type": "boolean"},
    },
    required=["city", "days"],
    additionalProperties=False,
    **{
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                "required": ["v"],
                "additionalProperties": False,
            }
        }
    },
)
PLACE = tool(
    "place",
    True,
    properties={
        "at": {
            "oneOf": [
                {"type": "string", "minLength": 1, "maxLength": 8},
                {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            ]
        },
        "zoom": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
    },
    required=["at"],
    additionalProperties={"type": "boolean"},
)
SEARCH = tool("search", False, properties={"query": {"type": "string"}, "limit": {"type": "integer"}})
ALIKE = [
    tool("a", False),
    tool("ab", True, properties={"x": {"type": "string"}, "x_y": {"type": "number"}}),
    tool(
        "a-b",
        True,
        properties={"s": {"enum": ["a", "ab", 'a b"c', "3 x", 3]}, "b": {"type": "boolean"}},
        required=["b"],
    ),
    tool(
        "abc",
        True,
        properties={
            "o": {"type": "object", "properties": {"k": {"type": "string"}}, "additionalProperties": False},
            "e": {"type": ["string", "null"], "minLength": 1},
            "n": {"enum": [1, 10, 100, "x"]},
            "m": {"type": "string", "minLength": 2, "maxLength": 4},
            "p": {"type": "string", "pattern": "^a*b?$"},
        },
        additionalProperties=False,
    ),
]
SEARCH_ANYTHING = tool("search", False, properties={"q": {}})
NOW = tool("now", True, additionalProperties=False)
TOOLS = [WEATHER, PLACE, SEARCH, NOW]
ANSWER = {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER["function"]["parameters"]}}
EVERY_TOOL = [one["function"] for one in (*TOOLS, *ALIKE)]
SCHEMAS = {function["name"]: function["parameters"] for function in EVERY_TOOL if function["strict"]}

REQUESTS: dict[str, dict[str, Any]] = {
    "auto": {"tools": TOOLS},
    "auto, one call": {"tools": TOOLS, "parallel_tool_calls": False},
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "required, one call": {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "named": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "place"}}},
    "none": {"tools": TOOLS, "tool_choice": "none"},
    "json": {"response_format": ANSWER},
    "json or calls": {"tools": TOOLS, "response_format": {"type": "json_object"}},
}
FORMATS = [format.name for format in unbraid.all_formats()]
EOS = {"<|im_end|>", "<|endoftext|>", "</s>", "<|EOT|>", "<|user|>"}


def requests(format: Format) -> dict[str, dict[str, Any]]:
    """The requests that make sense for a format, from wherever a prompt of its may leave it."""
    known = dict(REQUESTS)
    if format.tools is None:
        spoken = format.transcript is not None or (format.speech is not None and format.speech.implied)
        sensible = ("none",) if spoken else ("none", "json")
        known = {name: {**request, "tools": []} for name, request in known.items() if name in sensible}
    elif format.tools.bare:
        del known["json or calls"]  # nobody could tell which of them it is
    elif format.speech is not None and format.speech.implied:
        del known["json"], known["json or calls"]  # there is no place for an answer that is not spoken
    prompts: dict[str, dict[str, Any]] = {"": {}}
    if format.reasoning is not None:
        prompts |= {
            " in reasoning": {"prompt": format.reasoning.open},
            " after reasoning": {"reasoning": True, "prompt": ""},
        }
    if format.speech is not None and format.speech.open:
        prompts[" in speech"] = {"prompt": format.speech.open}
    return {f"{name}{where}": {**request, **more} for name, request in known.items() for where, more in prompts.items()}


# Most requests are tried on these, which have all that the others are made of; on the others, a few. The long run tries
# all on all.
THOROUGH = {format for format, _ in CASES.values()}


def tried(name: str) -> dict[str, dict[str, Any]]:
    """The requests that a format is tried with."""
    every = requests(unbraid.find(name))
    if LONG:
        return every
    most = 10 if name in THOROUGH else 3
    return {kind: every[kind] for kind in sorted(random.Random(name).sample(sorted(every), min(most, len(every))))}


@cache
def tokenizer_of(name: str) -> Any:
    """A tokenizer of a model that speaks the format, or one that does not know it: then its markers are text."""
    for format, make in CASES.values():
        if format == name:
            return make()
    versions = {"mistral-v3": 3, "mistral-v11": 11, "mistral-v13": 13}
    return real_tokenizers.mistral(versions[name]) if name in versions else real_tokenizers.qwen3_huggingface()


def vocabulary(tokenizer: object) -> WholeVocabulary:
    return cast(WholeVocabulary, vocabulary_of(tokenizer))


def ends(words: WholeVocabulary) -> set[int]:
    return {token for token in map(words.token_id, EOS) if token is not None}


def closers(format: Format, tokenizer: Any) -> list[list[int]]:
    """Tokens that close what may be open, or open it."""
    texts = {'"', "}", '"}', '"}}', "]", ")", '")', "'", "')"}
    for pair in (format.reasoning, format.answer, format.tools, format.speech):
        if pair is not None:
            texts |= {text.strip() for text in (pair.open, pair.close) if text}
    for node in _nodes(format.tools):
        if isinstance(node, notations.TaggedArguments):
            texts |= {node.close, node.close.strip()}
        elif isinstance(node, notations.BareArguments):
            texts.add(node.quote)
        elif isinstance(node, notations.ElementArguments):
            texts |= {node.mark, f"{node.mark}</x>", "</x>", "</", "/x>", ">"}
        elif isinstance(node, str) and node.strip():
            texts.add(node.strip())
    words = vocabulary(tokenizer)
    spelled = [encode_plain(tokenizer, text) for text in sorted(texts)]
    return [ids for ids in spelled if ids] + [
        [token] for token in map(words.token_id, sorted(texts)) if token is not None
    ]


def _nodes(tools: grammar.Calls | None) -> list[grammar.CallPart]:
    if tools is None:
        return []
    bodies, body = [], tools.body
    while isinstance(body, grammar.Either):
        bodies.append(body.first)
        body = body.second
    calls = [each.call if isinstance(each, grammar.CallList) else each for each in [*bodies, body]]
    return [part for call in calls for part in call.parts]


COMPOSED = [
    unbraid.compose(reasoning="deepseek-r1", tools="hermes", audio="step-audio-2"),
    unbraid.compose(reasoning="mistral", tools="qwen3-coder", audio="step-audio-2"),
    unbraid.compose(reasoning="think", tools="mistral", audio="step-audio-2"),
    unbraid.compose(reasoning="think", tools="lfm2"),
    unbraid.compose(tools="hermes", audio="glm-4-voice"),
    unbraid.compose(reasoning="think", tools="qwen3-coder", audio="vita-audio"),
]
