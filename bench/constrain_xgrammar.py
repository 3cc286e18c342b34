"""xgrammar at the same task, where it is installed: a structural tag of ours on the same vocabulary."""

from __future__ import annotations

import importlib
import json
from time import perf_counter
from typing import Any

from unbraid.core.vocabulary import WholeVocabulary


def find() -> Any:
    """xgrammar; None where it is not installed."""
    try:
        return importlib.import_module("xgrammar")
    except ImportError:
        return None


class Compiler:
    """xgrammar's, set up for one vocabulary; it keeps what it may, as in a server."""

    def __init__(self, xgrammar: Any, vocabulary: WholeVocabulary, ends: list[int]) -> None:
        start = perf_counter()
        tokens = [vocabulary.token_bytes(token) or b"" for token in range(vocabulary.size)]
        info = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, stop_token_ids=ends)
        self._compiler = xgrammar.GrammarCompiler(info)
        self.set_up = perf_counter() - start
        self._xgrammar = xgrammar
        self._mask = xgrammar.allocate_token_bitmask(1, vocabulary.size)

    def compile(self, tag: dict[str, Any]) -> Any:
        return self._compiler.compile_structural_tag(json.dumps(tag))

    def masks(self, compiled: Any) -> XGrammarMasks:
        return XGrammarMasks(self._xgrammar.GrammarMatcher(compiled), self._mask)


class XGrammarMasks:
    """Steps as `unbraid` makes them. The mask is filled in place, which is how servers use it."""

    def __init__(self, matcher: Any, mask: Any) -> None:
        self._matcher, self._mask = matcher, mask

    def allowed(self) -> Any:
        self._matcher.fill_next_token_bitmask(self._mask)
        return self._mask

    def advance(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise RuntimeError(f"xgrammar refuses token {token}")


def in_tensor(mask: Any, token: int) -> bool:
    return bool(int(mask[0, token // 32]) >> token % 32 & 1)
