"""What llama.cpp's converter makes tighter than JSON, whatever the schema says, put right in the GBNF that it made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

# Its numbers have at most 16 digits, and no `e-07`; its strings no `\/` and no DEL.
_RULES = {
    "integral-part": "[0] | [1-9] [0-9]*",
    "decimal-part": "[0-9]+",
    "char": r'[^"\\\x00-\x1F] | [\\] (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
}
_EXPONENT = "([eE] [-+]? integral-part)?", "([eE] [-+]? [0-9]+)?"
_OTHER_NAMES = re.compile(r"(?:^|-)additional-k\d*$")
_RULE_NAME = re.compile(r"[A-Za-z0-9-]+")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_UNIT = re.compile(r"\\u.{4}|\\.|[^\\]", re.DOTALL)
_LONGEST_NAME = 60  # the grammar nests as deep as a name is long


def mend(gbnf: str) -> str:
    """The grammar, with rules that take all numbers, all strings and all names of other properties."""
    rules = dict(line.split(" ::= ", 1) for line in gbnf.split("\n") if line)
    for name, body in rules.items():
        rules[name] = _RULES.get(name) or body.replace(*_EXPONENT)
    for name, body in rules.items():
        if _OTHER_NAMES.search(name) and body.startswith('["] ('):
            rules[name] = other_names(_taken(name, rules))
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())


def _taken(name: str, rules: dict[str, str]) -> Iterable[str]:
    """The names that the object, whose other properties `name` is about, has for its own."""
    pairs = {pair for pair, body in rules.items() if body.startswith(f'{name} ":" ')}
    for body in rules.values():
        # In order, so that the same schema always gives the same text.
        parts = dict.fromkeys(_RULE_NAME.findall(body)) if body.startswith('"{" ') else {}
        if pairs & parts.keys():
            for part in parts:
                literal = _LITERAL.match(rules.get(part, ""))
                if literal and part not in pairs and part.rstrip("0123456789").endswith("-kv"):
                    yield json.loads(re.sub(r"\\(.)", lambda escape: {"n": "\n", "r": "\r"}.get(escape[1], escape[1]),
                                            literal[1]), strict=False)  # fmt: skip


def other_names(names: Iterable[str]) -> str:
    """A JSON string that is none of these. (llama.cpp's own rule also refuses their beginnings, and breaks on `]`.)"""
    trie: dict[str, dict[str, object]] = {}
    for name in names:
        units = _UNIT.findall(json.dumps(name, ensure_ascii=False)[1:-1])
        node: dict[str, object] = trie  # type: ignore[assignment]
        if len(units) <= _LONGEST_NAME:
            for unit in units:
                node = node.setdefault(unit, {})  # type: ignore[assignment]
            node[""] = {}
    return '"\\"" (' + _after(trie) + ")"


def _after(node: dict[str, dict[str, object]]) -> str:
    plain = "".join(_in_class(unit) for unit in node if len(unit) == 1)
    escapes = "".join(letter for letter in '"\\/bfnrt' if "\\" + letter not in node)
    options = [] if "" in node else ['"\\""']
    options.append(rf'[^"\\\x00-\x1F{plain}] char* "\""')
    options.append(f'[\\\\] ([{"".join(map(_in_class, escapes))}] | "u" [0-9a-fA-F]{{4}}) char* "\\""')
    for unit, inner in node.items():
        if unit:
            literal = unit.replace("\\", "\\\\").replace('"', '\\"')
            options.append(f'"{literal}" ({_after(inner)})')  # type: ignore[arg-type]
    return " | ".join(options)


def _in_class(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02X}"
