"""One search pattern for thousands of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class _Node:
    end: bool
    children: dict[str, _Node]


def pattern_of(texts: Iterable[str]) -> str:
    """A pattern for the longest of `texts` at a place, shared beginnings written once: it costs no more for the 6,562
    audio tokens of a vocabulary than for one."""
    root = _Node(False, {})
    for text in texts:
        node = root
        for character in text:
            node = node.children.setdefault(character, _Node(False, {}))
        node.end = True
    return _written(root) or "(?!)"


def _written(node: _Node) -> str:
    branches = []
    for character, child in node.children.items():
        text = re.escape(character)
        while len(child.children) == 1 and not child.end:
            ((character, child),) = child.children.items()
            text += re.escape(character)
        branches.append(text + _written(child))
    if not branches:
        return ""
    inner = branches[0] if len(branches) == 1 and not node.end else f"(?:{'|'.join(branches)})"
    return f"{inner}?" if node.end else inner
