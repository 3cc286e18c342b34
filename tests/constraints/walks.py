"""Random walks through the masks of a constraint: texts that it accepts, one allowed token after the other."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np

from unbraid import Constraint
from unbraid.constraints.masks import Masks

from .grammar_engines import LlguidanceGrammar

_LONGEST = 4_000


def walk(masks: Masks, ends: set[int], closers: list[list[int]], random: random.Random, size: int) -> list[int] | None:
    """A text that the masks accept, as token ids. After some `size` tokens the walk hurries to an end, by way of
    `closers`: tokens that close what may be open. None where it does not find one."""
    written: list[int] = []
    while len(written) < _LONGEST:
        mask = masks.allowed()
        late = len(written) > size
        if masks.may_end and random.random() < (0.9 if late else 0.05):
            return written
        ways = [tokens for tokens in closers if _allows(mask, tokens[0])]
        if ways and random.random() < (0.8 if late else 0.25):
            tokens = random.choice(ways)
            if masks.accepted(tokens) < len(tokens):
                tokens = tokens[:1]
        else:
            token = _any(mask, ends, random)
            if token is None:
                return written
            tokens = [token]
        for token in tokens:
            masks.advance(token)
        written += tokens
    return None


def _allows(mask: bytes, token: int) -> bool:
    return bool(mask[token >> 3] >> (token & 7) & 1)


def _any(mask: bytes, ends: set[int], random: random.Random) -> int | None:
    """A random token that is allowed and ends nothing."""
    for _ in range(40):
        token = random.randrange(len(mask) * 8)
        if _allows(mask, token) and token not in ends:
            return token
    tokens = [
        token
        for byte in np.frombuffer(mask, np.uint8).nonzero()[0].tolist()  # few have a bit
        for token in range(8 * byte, 8 * byte + 8)
        if _allows(mask, token) and token not in ends
    ]
    return random.choice(tokens) if tokens else None


def constraint_accepts(constraint: Constraint, text: str) -> bool:
    """Whether all of the text is what a constraint for text allows."""
    return _grammar(constraint._lark).accepts(text)


_grammar = lru_cache(maxsize=64)(LlguidanceGrammar)
