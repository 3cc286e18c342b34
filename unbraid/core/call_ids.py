"""Ids for tool calls: they look random, are reproducible from a seed, and cannot collide within a response."""

from __future__ import annotations

import secrets

from .grammar import CallIds

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Coprime to 62, so that seed + index * step takes 62**length different values before one comes again.
_STEP = 982_451_653_982_451_653


def new_seed() -> int:
    return secrets.randbits(192)


def make_id(style: CallIds, seed: int, index: int) -> str:
    number = (seed + index * _STEP) % 62**style.length
    digits = []
    for _ in range(style.length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return style.prefix + "".join(digits)
