"""The bounds of numbers: `minimum`, `maximum` and their exclusive forms, which were booleans in draft 4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from .types import is_number


def bounds(node: Mapping[str, Any]) -> tuple[Fraction | float, Fraction | float, bool, bool]:
    """The lowest and the highest value, and whether each of them is excluded."""
    low, high, open_low, open_high = -math.inf, math.inf, False, False
    lows = [(node.get("minimum"), node.get("exclusiveMinimum") is True)]
    highs = [(node.get("maximum"), node.get("exclusiveMaximum") is True)]
    lows += [(node["exclusiveMinimum"], True)] if is_number(node.get("exclusiveMinimum")) else []
    highs += [(node["exclusiveMaximum"], True)] if is_number(node.get("exclusiveMaximum")) else []
    result: list[tuple[Fraction | float, bool]] = [(low, open_low), (high, open_high)]
    for side, found in enumerate((lows, highs)):
        for value, is_open in found:
            if value is not None:
                exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
                current, current_open = result[side]
                stricter = exact > current if side == 0 else exact < current
                if stricter or (exact == current and is_open and not current_open):
                    result[side] = exact, is_open
    return result[0][0], result[1][0], result[0][1], result[1][1]
