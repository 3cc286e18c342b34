"""What a client may ask of a model: JSON schemas, response formats and grammars.

They are refused with a reason, or made into a constraint in every syntax.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import unbraid
from unbraid import UnbraidError
from unbraid.constraints.grammars import UnsupportedGrammar
from unbraid.constraints.grammars.reader import read_grammar
from unbraid.core.custom_tools import Grammar, Syntax
from unbraid.errors import Place

from ...support import strategies
from ..source import Source

_TYPES = ["object", "array", "string", "integer", "number", "boolean", "null", "float", "any", "OBJECT", ""]
_WORDS = [*"ab", "$ref", "#/$defs/a", "#", "#/$defs/b", "a/b", "~0", "%25", "^a*$", "[^a]+", "(a|b){2,}"]
_WORDS += ["\\d{1,3}", "(?=x)"]
_WORDS += ["date-time", "uuid", "<", "</", "\n", '"', "\\", "é", "😀", *_TYPES]
_OF_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_OF_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_OF_NUMBERS: tuple[str, ...] = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
_OF_NUMBERS += ("minProperties", "maxProperties")
_OF_OBJECTS = ("properties", "patternProperties", "$defs", "dependentSchemas")
_OTHERS = ("enum", "const", "pattern", "format", "required", "$ref", "default", "uniqueItems", "nullable", "title", "x")
_NUMBERS = [0, 1, 2, 3, 10, -1, 0.5, 0.1, 1e-9, 1e300, 10**30, 255, 100_000, -(2**63)]
_LARK = ["start", "item", "WORD", ": ", "\n", " | ", '"a"', '"b"i', "/[a-z]+/", "/./s", "(", ")", "[", "]", "?"]
_LARK += ["*", "+"]
_LARK += ["~2..4", "~3", '"a".."z"', "%import common.", "INT", "WS", "%ignore ", "%declare ", "-> x", "start: "]
_LARK += ["|", "!"]
_LARK += ["{a, b}", "// comment", "\\", '"\\n"', "/(?=a)b/", "/\\p{L}/", "%json {}", "<a>", "_x", "x.2: "]
_REGEX = ["(", ")", "(?:", "[", "[^", "]", "a-z", "*", "+", "?", "{2,4}", "{1000}", "|", "^", "$", ".", "\\d"]
_REGEX += ["\\w", "\\b"]
_REGEX += ["\\u0041", "\\x41", "\\p{L}", "(?=", "(?!", "(?<=", "(?P<a>", "\\1", "(?i)", "\\\\", "é", "😀", "\\"]
_REGEX += ["&&", "--"]


def schema(data: bytes) -> None:
    source = Source(data)
    format = source.choice(strategies.FORMATS)
    asked: dict[str, Any] = {}
    if source.chance():
        tool = {"name": "f", "strict": source.chance(), "parameters": a_schema(source)}
        asked["tools"] = [tool, {"type": "function", "function": {**tool, "name": "g"}}][: source.below(3)]
        asked["tool_choice"] = source.choice([None, "auto", "required", "none", {"type": "function", "name": "f"}, 7])
    else:
        asked["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "n", "strict": source.chance(), "schema": a_schema(source)},
        }
    _printed(format, asked)


def a_schema(source: Source, depth: int = 0) -> Any:
    """Something like a JSON schema. Now and then a keyword has a value of the wrong kind."""
    if depth > 4 or not source:
        return {"type": source.choice(_TYPES)}
    found: dict[str, Any] = {} if source.chance() else {"type": source.choice(_TYPES)}
    for _ in range(source.below(5)):
        kind = source.below(7)
        if kind == 0:
            found[source.choice(_OF_SCHEMAS)] = a_schema(source, depth + 1)
        elif kind == 1:
            found[source.choice(_OF_LISTS)] = [a_schema(source, depth + 1) for _ in range(source.below(4))]
        elif kind == 2:
            found[source.choice(_OF_NUMBERS)] = source.choice(_NUMBERS)
        elif kind in (3, 4):
            names = [source.text(_WORDS, 4) for _ in range(source.below(4))]
            found[source.choice(_OF_OBJECTS)] = {name: a_schema(source, depth + 1) for name in names}
        elif kind == 5:
            keyword = source.choice(_OTHERS)
            lists = keyword in ("enum", "required")
            found[keyword] = [source.json(_WORDS, 5) for _ in range(source.below(4))] if lists else source.text(_WORDS)
        else:
            anywhere = (*_OF_SCHEMAS, *_OF_LISTS, *_OF_NUMBERS, *_OF_OBJECTS, *_OTHERS)
            found[source.choice(anywhere)] = source.json(_WORDS, 3)
    return found


def grammar(data: bytes) -> None:
    source = Source(data)
    format = source.choice(strategies.FORMATS)
    syntax: Syntax = source.choice(["lark", "regex"])
    definition = "".join(source.words(_LARK if syntax == "lark" else _REGEX, 200))
    with suppress(UnbraidError, UnsupportedGrammar):
        read_grammar(Grammar(syntax, definition), Place("tools", 0, "format", "definition"))
    asked = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    _printed(
        format, {"tools": [{"type": "custom", "custom": {"name": "f", "format": asked}}], "tool_choice": "required"}
    )


def _printed(format: unbraid.Format, asked: dict[str, Any]) -> None:
    """A constraint in every syntax."""
    try:
        made = unbraid.constraint(format, **asked)
    except UnbraidError:
        return
    for write in (made.to_lark, made.to_gbnf, made.to_llama_cpp, made.to_ebnf, made.to_structural_tag, made.to_regex):
        with suppress(UnbraidError):
            write()
