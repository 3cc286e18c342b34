"""What is kept so that it need not be computed again: a bounded cache, one that lives as long as its keys, and a dict
that is not sent anywhere.

There is one policy for whatever is bounded: what was not used for the longest is forgotten first. (For a pure function
of hashable arguments, `functools.lru_cache` has the same policy.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class LruCache(Generic[K, V]):
    """A mapping of at most `most` entries, the least recently used first. With `most=0` it keeps nothing.

        >>> cache = LruCache(2)
        >>> cache["a"], cache["b"] = 1, 2
        >>> cache.get("a")
        1
        >>> cache["c"] = 3
        >>> list(cache)
        ['a', 'c']

    Threads may share it without a lock. Each line below is one operation of an `OrderedDict`; before the next line
    another thread may have dropped the key (`KeyError`). At worst two threads compute the same value.
    """

    __slots__ = ("_entries", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Whether there is a value. To ask is not to use it."""
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        """The keys as they are now, the least recently used first."""
        return iter(list(self._entries))

    def values(self) -> list[V]:
        """The values as they are now. To look at them is not to use them."""
        return list(self._entries.values())

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        value = self._entries.get(key, default)
        if value is not default:
            try:  # noqa: SIM105 (three times as fast as `suppress`)
                self._entries.move_to_end(key)
            except KeyError:
                pass
        return value

    def __setitem__(self, key: K, value: V) -> None:
        entries = self._entries
        try:
            entries[key] = value
            entries.move_to_end(key)
            if len(entries) > self._most:
                entries.popitem(last=False)
        except KeyError:
            pass

    def setdefault(self, key: K, value: V) -> V:
        """The value that is kept for the key already; else `value`, which is kept from now on."""
        kept = self._entries.setdefault(key, value)
        self[key] = kept
        return kept

    def pop(self, key: K) -> V | None:
        return self._entries.pop(key, None)


class WeakCache(Generic[V]):
    """Calls `compute` once for each object and keeps the result while the object lives.

    The result must not refer to the object: it would keep its own key alive, and neither would ever be freed.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        from weakref import WeakKeyDictionary  # not needed for `import unbraid`

        self._compute = compute
        self._kept: WeakKeyDictionary[Any, V] = WeakKeyDictionary()

    def __call__(self, object: Any) -> V:
        try:
            kept = self._kept.get(object)
        except TypeError:  # no hash or no weak reference: nothing can be kept for it
            return self._compute(object)
        if kept is None:
            kept = self._kept[object] = self._compute(object)
        return kept


class LocalDict(dict[K, V]):
    """A dict that stays in its process: what another one gets is empty."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()
