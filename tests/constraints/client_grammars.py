"""Grammars as clients give them for custom tools, and what the `lark` package says of texts."""

from __future__ import annotations

from functools import cache
from typing import Any

import lark

# As Codex has it.
APPLY_PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""

# Expressions: they nest, and hold neither quotes nor `<`.
EXPRESSIONS = r"""
start: sum
sum: product | sum "+" product | sum "-" product
product: atom | product "*" atom
?atom: NUMBER -> number
     | "-" atom
     | "(" sum ")"
%import common.NUMBER
%ignore /[ \n]/
"""

# Values: they nest, and hold quotes, backslashes and `<`.
VALUES = r"""
start: value
value: ESCAPED_STRING | "<" value ">" | "[" [value ("," value)*] "]" | "null"i
%import common.ESCAPED_STRING
"""


@cache
def _parser(grammar: str) -> lark.Lark:
    # Lark takes no terminal that may be empty.
    return lark.Lark(grammar.replace("/(.*)/", "/(.+)/?"), parser="earley", lexer="dynamic_complete")


def follows(grammar: str, text: str) -> bool:
    """Whether a text follows a grammar, says Lark."""
    parser = _parser(grammar)
    try:
        parser.parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


def custom_tool(grammar: str | None, syntax: str = "lark", name: str = "apply_patch") -> dict[str, Any]:
    given = {"type": "text"} if grammar is None else {"type": "grammar", "syntax": syntax, "definition": grammar}
    return {"type": "custom", "name": name, "format": given}
