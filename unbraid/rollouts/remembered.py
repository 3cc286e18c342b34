"""What is remembered: the most recent answers to questions that come again, a bounded number of them.

A renderer serves many threads, so nothing here breaks if two of them ask at once; at worst both work out the answer.
"""

from __future__ import annotations

import json
import marshal
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """Answers by question.

    most: how many are kept. The one that was not asked for the longest goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, otherwise: V) -> V:
        """The answer, or `otherwise` where there is none."""
        with self._lock:
            if key not in self._kept:
                return otherwise
            self._kept.move_to_end(key)
            return self._kept[key]

    def put(self, key: Hashable, value: V) -> V:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value


def key_of(value: Any) -> bytes:
    """The same for the same JSON, and for no other."""
    try:
        return marshal.dumps(value, 2)  # ten times as fast
    except ValueError:  # it is not plain JSON
        return json.dumps(value, default=repr).encode()
