"""Reads Lark's notation into nodes: each rule and terminal becomes a node with references to others (`Rule`).

The notation is the part of Lark's that OpenAI and llguidance take. Names that only shape a tree (`-> alias`, `?rule`,
priorities) say nothing about texts and are dropped. What `%ignore` names may stand before every terminal and at the
end. What is not known here, or is no plain language, is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.fast_import import lazily
from ...metering import spend
from ...schema.patterns import BadPattern, UnsupportedPattern, either_case, parse_whole
from ...schema.regular import NOTHING, Node, Repeat, Verbatim, chars, choice, maybe, sequence
from ..language import Rule, rewritten
from . import BadGrammar, UnsupportedGrammar

_words = lazily(
    lambda: (
        re.compile(
            r"""(?P<space>[ \t\r\f]+|(?://|\#)[^\n]*)
        |(?P<line>\n)
        |(?P<string>"(?:[^"\\\n]|\\[^\n])*"i?)
        |(?P<regex>/(?:[^/\\\n]|\\[^\n])+/[a-z]*)
        |(?P<name>_{0,2}[A-Za-z][A-Za-z0-9_]*)
        |(?P<directive>%[a-z]+)
        |(?P<number>[0-9]+)
        |(?P<sign>->|\.\.|[:|()\[\]{},.~*+?!])
        |(?P<other>.)""",
            re.VERBOSE,
        ).finditer
    )
)
_escapes = lazily(lambda: re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL).sub)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "b": "\b", "a": "\a", "0": "\0"}


@dataclass(frozen=True, slots=True)
class LarkToken:
    """A word of a grammar."""

    kind: str
    text: str
    line: int


def lark_tokens(grammar: str) -> Iterator[LarkToken]:
    """All words; the ends of lines are words too, and the last is an end."""
    line = 1
    for match in _words(grammar):
        spend()
        kind = match.lastgroup or ""
        if kind == "other":
            raise BadGrammar(f"line {line}: {match.group()!r} does not belong there")
        if kind != "space":
            yield LarkToken(kind, match.group(), line)
        line += kind == "line"
    yield LarkToken("end", "", line)


def unquoted(word: LarkToken) -> str:
    """What a string says, without its flag."""

    def said(escape: re.Match[str]) -> str:
        digits = escape.group(1) or escape.group(2) or escape.group(3)
        if not digits:
            return _SHORT.get(escape.group(4), escape.group(4))
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise BadGrammar(f"line {word.line}: {escape.group()} is no character")
        return chr(code)

    return _escapes(said, word.text.removesuffix("i")[1:-1])


START = "start"
_IGNORED = "%ignore"
"""The name of the rule for what may stand between terminals."""
_MOST_RULES = 1_000
_MOST_DEPTH = 50
_MOST_TIMES = 1_000


_COMMON = {
    "DIGIT": '"0".."9"',
    "HEXDIGIT": '"a".."f" | "A".."F" | DIGIT',
    "INT": "DIGIT+",
    "SIGNED_INT": '["+" | "-"] INT',
    "DECIMAL": 'INT "." INT? | "." INT',
    "_EXP": '("e" | "E") SIGNED_INT',
    "FLOAT": "INT _EXP | DECIMAL _EXP?",
    "SIGNED_FLOAT": '["+" | "-"] FLOAT',
    "NUMBER": "FLOAT | INT",
    "SIGNED_NUMBER": '["+" | "-"] NUMBER',
    "ESCAPED_STRING": r'/"([^"\\\n]|\\.)*"/',
    "LCASE_LETTER": '"a".."z"',
    "UCASE_LETTER": '"A".."Z"',
    "LETTER": "UCASE_LETTER | LCASE_LETTER",
    "WORD": "LETTER+",
    "CNAME": '("_" | LETTER) ("_" | LETTER | DIGIT)*',
    "WS_INLINE": r"/[ \t]+/",
    "WS": r"/[ \t\f\r\n]+/",
    "CR": r"/\r/",
    "LF": r"/\n/",
    "NEWLINE": "(CR? LF)+",
    "SH_COMMENT": r"/#[^\n]*/",
    "CPP_COMMENT": r"/\/\/[^\n]*/",
    "C_COMMENT": r"/\/\*([^*]|\*+[^*\/])*\*+\//",
    "SQL_COMMENT": r"/--[^\n]*/",
}
"""The terminals that `%import common.X` means: those of Lark's own library, without lookbehinds."""


def read_lark(grammar: str) -> dict[str, Node]:
    """The rules and terminals by their names; the text follows `start`. Raises `BadGrammar`."""
    return _Reader(grammar).rules_and_terminals()


class _Reader:
    def __init__(self, grammar: str) -> None:
        self._words = list(lark_tokens(grammar))
        self._at = 0
        self._depth = 0
        self._terminal = ""
        """The terminal that is being read, if it is one."""
        self._found: dict[str, Node] = {}
        self._ignored: list[Node] = []
        self._ignores = any(word.text == _IGNORED for word in self._words)

    def rules_and_terminals(self) -> dict[str, Node]:
        while not self._next("end"):
            if self._take("line"):
                continue
            if self._next("directive"):
                self._directive()
            else:
                self._definition()
        if START not in self._found:
            raise BadGrammar(f"there is no rule `{START}`, which the text is to follow")
        if self._ignores:
            self._found[_IGNORED] = Repeat(choice(*self._ignored))
            self._found[START] = sequence(self._found[START], Rule(_IGNORED))
        return self._found

    # --- Words -----------------------------------------------------------------------------------------------------

    def _next(self, kind: str, *texts: str) -> bool:
        word = self._words[self._at]
        return word.kind == kind and (not texts or word.text in texts)

    def _take(self, kind: str, *texts: str) -> LarkToken | None:
        if not self._next(kind, *texts):
            return None
        self._at += 1
        return self._words[self._at - 1]

    def _expect(self, kind: str, *texts: str) -> LarkToken:
        word = self._take(kind, *texts)
        if word is None:
            raise self._error(f"where {' or '.join(texts) or f'a {kind}'} should be")
        return word

    def _error(self, what: str) -> BadGrammar:
        word = self._words[self._at]
        there = {"line": "the line ends", "end": "the grammar ends"}.get(word.kind, f"`{word.text}` stands")
        return BadGrammar(f"line {word.line}: {there} {what}")

    def _refuse(self, what: str, line: int) -> UnsupportedGrammar:
        return UnsupportedGrammar(f"line {line}: {what} is not supported")

    # --- Definitions -----------------------------------------------------------------------------------------------

    def _definition(self) -> None:
        while self._take("sign", "?", "!"):
            pass
        word = self._expect("name")
        name = word.text
        if self._next("sign", "{"):
            raise self._refuse("a template (`name{…}`)", word.line)
        if self._next("sign", "["):
            raise self._refuse("an attribute (`name[…]`)", word.line)
        if self._take("sign", "."):
            self._expect("number")
        self._expect("sign", ":")
        self._terminal = name if _is_terminal(name) else ""
        self._define(name, self._alternatives(), word.line)
        if not self._next("end"):
            self._expect("line")

    def _define(self, name: str, node: Node, line: int) -> None:
        if name in self._found:
            raise BadGrammar(f"line {line}: `{name}` is defined twice")
        if len(self._found) >= _MOST_RULES:
            raise UnsupportedGrammar(f"it has more than {_MOST_RULES} rules and terminals")
        self._found[name] = node

    def _directive(self) -> None:
        word = self._expect("directive")
        if word.text == "%import":
            self._import(word.line)
        elif word.text == _IGNORED:
            self._terminal = _IGNORED
            self._ignored.append(self._alternatives())
        else:
            raise self._refuse(f"`{word.text}`", word.line)
        if not self._next("end"):
            self._expect("line")

    def _import(self, line: int) -> None:
        library = self._take("name")
        if library is None or library.text != "common":
            raise self._refuse("`%import` of something else than `common`", line)
        if self._take("sign", "."):
            name = self._expect("name").text
            self._import_common(name, self._expect("name").text if self._take("sign", "->") else name, line)
            return
        self._expect("sign", "(")
        while True:
            name = self._expect("name").text
            self._import_common(name, name, line)
            if self._expect("sign", ",", ")").text == ")":
                return

    def _import_common(self, name: str, known_as: str, line: int) -> None:
        if name not in _COMMON:
            raise self._refuse(f"`%import common.{name}`", line)
        self._define(known_as, _common(name), line)

    # --- Expressions -----------------------------------------------------------------------------------------------

    def _alternatives(self) -> Node:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise UnsupportedGrammar(f"line {self._words[self._at].line}: groups nest deeper than {_MOST_DEPTH}")
        options = [self._alternative()]
        while self._more_lines() and self._take("sign", "|"):
            options.append(self._alternative())
        self._depth -= 1
        return choice(*options)

    def _more_lines(self) -> bool:
        """Goes on to the next line where that goes on with the definition: in a group, or with `|`."""
        at = self._at
        while self._words[at].kind == "line":
            at += 1
        if self._depth > 1 or (self._words[at].kind, self._words[at].text) == ("sign", "|"):
            self._at = at
        return True

    def _alternative(self) -> Node:
        items: list[Node] = []
        while True:
            self._more_lines()
            if self._take("sign", "->"):
                self._expect("name")
                return sequence(*items)
            if self._next("line") or self._next("end") or self._next("sign", "|", ")", "]"):
                return sequence(*items)
            items.append(self._item())

    def _item(self) -> Node:
        spend()
        node = self._atom()
        if sign := self._take("sign", "?", "*", "+"):
            return Repeat(node, 1 if sign.text == "+" else 0, 1 if sign.text == "?" else None)
        if self._take("sign", "~"):
            least = self._count()
            return self._repeated(node, least, self._count() if self._take("sign", "..") else least)
        if brace := self._take("sign", "{"):
            if not self._next("number") and not self._next("sign", ","):
                raise self._refuse("a template (`name{…}`)", brace.line)
            few = self._count() if self._next("number") else 0
            most: int | None = few
            if self._take("sign", ","):
                most = self._count() if self._next("number") else None
            self._expect("sign", "}")
            return self._repeated(node, few, most)
        return node

    def _repeated(self, node: Node, least: int, most: int | None) -> Node:
        if most is not None and most < least:
            raise self._error("after counts that are the wrong way round")
        return Repeat(node, least, most)

    def _count(self) -> int:
        word = self._expect("number")
        if len(word.text) > 9 or int(word.text) > _MOST_TIMES:
            raise UnsupportedGrammar(f"line {word.line}: nothing can be repeated more than {_MOST_TIMES} times")
        return int(word.text)

    def _atom(self) -> Node:
        if self._take("sign", "("):
            node = self._alternatives()
            self._expect("sign", ")")
            return node
        if self._take("sign", "["):
            node = self._alternatives()
            self._expect("sign", "]")
            return maybe(node)
        if word := self._take("name"):
            return self._reference(word)
        return self._lexed(self._literal())

    def _reference(self, word: LarkToken) -> Node:
        if _is_terminal(word.text):
            return self._lexed(Rule(word.text))
        if self._terminal:
            raise BadGrammar(f"line {word.line}: the terminal `{self._terminal}` refers to the rule `{word.text}`")
        return Rule(word.text)

    def _lexed(self, node: Node) -> Node:
        """A terminal where it is used: in a rule, what is ignored may stand before it."""
        return sequence(Rule(_IGNORED), node) if self._ignores and not self._terminal else node

    def _literal(self) -> Node:
        if word := self._take("regex"):
            return _pattern(word)
        word = self._expect("string")
        text = unquoted(word)
        if not self._take("sign", ".."):
            return either_case(text) if word.text.endswith("i") else Verbatim(text) if text else NOTHING
        end = self._expect("string")
        last = unquoted(end)
        if len(text) != 1 or len(last) != 1 or last < text:
            raise BadGrammar(f"line {word.line}: {word.text}..{end.text} is no range of characters")
        return chars(text + last)


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _pattern(word: LarkToken) -> Node:
    pattern, _, flags = word.text[1:].rpartition("/")
    try:
        return parse_whole(pattern, flags)
    except BadPattern as problem:
        raise BadGrammar(f"line {word.line}: {word.text:.80}: {problem}") from None
    except UnsupportedPattern as problem:
        raise UnsupportedGrammar(f"line {word.line}: {word.text:.80}: {problem}") from None


def _common(name: str) -> Node:
    """A terminal of the library, written out: they refer to few others, and not to themselves."""
    read = _Reader(f"{START}: {_COMMON[name]}").rules_and_terminals()
    return rewritten(read[START], lambda one: _common(one.name) if isinstance(one, Rule) else None)
