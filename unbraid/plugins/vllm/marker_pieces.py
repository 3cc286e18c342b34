"""Special tokens that are pieces of markers.

vLLM leaves special tokens out of the text, and so do we where they say nothing. But a marker may consist of several of
them: PLaMo writes `<|plamo:begin_`, `think`, `:plamo|>`. These must not be left out. vLLM is not imported here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import cast

from ...core.grammar import Format
from ...core.vocabulary import Vocabulary


def marker_pieces(format: Format, vocabulary: Vocabulary | None, special: frozenset[int]) -> frozenset[int]:
    """The special tokens whose text is a part of something that the format writes, and not all of it."""
    return frozenset() if vocabulary is None else _found(format, cast(Hashable, vocabulary), special)


@lru_cache
def _found(format: Format, known: Hashable, special: frozenset[int]) -> frozenset[int]:
    vocabulary = cast(Vocabulary, known)
    literals = [text for text in _texts(format) if vocabulary.token_id(text) is None]
    spelled = ((token, (vocabulary.token_bytes(token) or b"").decode(errors="replace")) for token in special)
    return frozenset(token for token, text in spelled if text and any(text in literal for literal in literals))


def _texts(node: object) -> Iterator[str]:
    """Every literal of a grammar."""
    if isinstance(node, str):
        if text := node.strip():
            yield text
    elif isinstance(node, tuple):
        for item in node:
            yield from _texts(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for item in fields(node):
            if item.name not in ("name", "ends", "prompt"):
                yield from _texts(getattr(node, item.name))
