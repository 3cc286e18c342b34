"""The bounded cache: what it forgets, and that threads may share it."""

from __future__ import annotations

import doctest
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from unbraid import caching
from unbraid.caching import LruCache

STEPS = st.lists(st.tuples(st.sampled_from(["get", "set", "setdefault", "pop"]), st.integers(0, 5)))


def test_the_example() -> None:
    result = doctest.testmod(caching)
    assert result.attempted
    assert not result.failed


@given(most=st.integers(0, 4), steps=STEPS)
def test_it_is_a_dict_that_forgets_what_was_not_used_for_the_longest(most: int, steps: list[tuple[str, int]]) -> None:
    cache: LruCache[int, object] = LruCache(most)
    model: OrderedDict[int, object] = OrderedDict()
    for step, key in steps:
        value = object()
        if step == "get":
            assert cache.get(key) is model.get(key)
        elif step == "pop":
            assert cache.pop(key) is model.pop(key, None)
        elif step == "setdefault":
            assert cache.setdefault(key, value) is model.setdefault(key, value)
        else:
            cache[key] = model[key] = value
        if key in model:
            model.move_to_end(key)
        while len(model) > most:
            model.popitem(last=False)
        assert list(cache) == list(model)
        assert len(cache) == len(model)
        assert (key in cache) == (key in model)


def test_none_is_a_value() -> None:
    cache: LruCache[str, int | None] = LruCache(2)
    cache["a"] = None
    assert cache.get("a", 1) is None
    assert cache.get("b", 1) == 1


def test_threads_share_it() -> None:
    cache: LruCache[int, int] = LruCache(3)

    def use(seed: int) -> int:
        for number in range(2_000):
            key = (number * seed) % 7
            assert cache.get(key, key) == key
            cache[key] = key
            cache.setdefault(key + 1, key + 1)
            cache.pop(key + 2)
        return len(cache)

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(use, range(1, 9)))) == 8
    cache[8] = 8
    assert len(cache) <= 3 + 4  # a thread that forgets none has seen another do it
