"""A language with the grammars of clients in it, or without them, for printers: they know neither `Restricted` nor
`Nested`.

A printer takes the language with the grammars first, and without them where it cannot say them. What is lost then is
among the language's `unenforced`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...schema.regular import Node
from ..language import Language, Nested, Restricted, Rule, Unenforced, rewritten


def restricted(language: Language, left_recursion: bool = False) -> Language:
    """With all of them. `left_recursion` says whether the syntax takes rules that begin with themselves."""

    def takes(node: Restricted) -> bool:
        inside = Language(node, {}).nodes()
        return left_recursion or not any(isinstance(one, Nested) and one.left_recursive for one in inside)

    return _Rewriting(language, takes).run() if _has_any(language) else language


def unrestricted(language: Language) -> Language | None:
    """Without any; None where there are none."""
    return _Rewriting(language, lambda _: False).run() if _has_any(language) else None


def _has_any(language: Language) -> bool:
    return any(isinstance(node, Restricted) for node in language.nodes())


class _Rewriting:
    def __init__(self, language: Language, takes: Callable[[Restricted], bool]) -> None:
        self._language, self._takes = language, takes
        self._rules: dict[str, Node] = {}
        self._prefixes: dict[object, str] = {}
        self._unenforced: dict[Unenforced, None] = dict.fromkeys(language.unenforced)

    def run(self) -> Language:
        root = rewritten(self._language.root, self._chosen)
        rules = {name: rewritten(node, self._chosen) for name, node in self._language.rules.items()}
        return Language(root, {**rules, **self._rules}, tuple(self._unenforced))

    def _chosen(self, node: Node) -> Node | None:
        if not isinstance(node, Restricted):
            return None
        if self._takes(node):
            return rewritten(node.item, self._flat)
        self._unenforced[node.unenforced] = None
        return node.free

    def _flat(self, node: Node) -> Node | None:
        """The rules of what nests become rules of the language, under names that no others have. What is the same in
        several places has them once."""
        if not isinstance(node, Nested):
            return None
        prefix = self._prefixes.setdefault((node.root, *node.rules.items()), f"nested-{len(self._prefixes)}")
        names = {name: f"{prefix}-{at}" for at, name in enumerate(node.rules)}

        def renamed(node: Node) -> Node | None:
            return Rule(names[node.name]) if isinstance(node, Rule) else None

        self._rules.update({names[name]: rewritten(one, renamed) for name, one in node.rules.items()})
        return rewritten(node.root, renamed)
