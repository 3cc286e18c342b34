"""A language as EBNF for xgrammar: what SGLang calls `ebnf`, and vLLM `grammar`.

xgrammar tells tokens and free text by built-in rules, `Token(…)` and `TagDispatch(…)`.
"""

from __future__ import annotations

from ..language import Language, TextExcept, Token
from .printed import Printed
from .rules import RulePrinter, quoted


def to_ebnf(language: Language) -> Printed[str]:
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
