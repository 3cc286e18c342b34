"""A language as EBNF for xgrammar: what SGLang calls `ebnf`, and vLLM `grammar`.

xgrammar tells tokens and free text by built-in rules, `Token(…)` and `TagDispatch(…)`.
"""

from __future__ import annotations

from ..grammars.automaton import TooManyStates
from ..grammars.restriction import unrestricted
from ..language import Language, TextExcept, Token
from .printed import Printed
from .rules import RulePrinter, quoted


def to_ebnf(language: Language) -> Printed[str]:
    try:
        return print_ebnf(language)
    except TooManyStates:
        free = unrestricted(language)
        assert free is not None, "only clients' grammars have states"
        return print_ebnf(free)


def print_ebnf(language: Language) -> Printed[str]:
    """Raises `TooManyStates` where the grammar of a client is too large."""
    return _Printer().print(language)


class _Printer(RulePrinter):
    def token(self, node: Token) -> str:
        return f"Token({', '.join(map(str, node.ids))})"

    def free_text(self, node: TextExcept) -> str:
        if not node.without:
            return super().free_text(node)
        self.unenforced += node.length_unenforced()
        # It may end with the beginning of a word; xgrammar has no name for text that does not.
        excluded = "".join(f"{quoted(word)}, " for word in node.without)
        return self.named("text", f"TagDispatch(excludes=({excluded}))")
