"""The memory that bodies take together."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.errors import ApiError
from unbraid.server.http import SMALL_BODY, BodyMemory, Sender

from ..support.examples import examples

LARGE = 10 * SMALL_BODY


def test_one_client_has_at_most_half() -> None:
    memory = BodyMemory(4 * LARGE)
    mine = [Sender("me") for _ in range(3)]
    memory.add(mine[0], LARGE)
    memory.add(mine[1], LARGE)
    with pytest.raises(ApiError, match="your large requests") as refused:
        memory.add(mine[2], LARGE)
    assert refused.value.status == 429
    memory.release(mine[2])
    memory.add(Sender("you"), LARGE)
    memory.release(mine[0])
    memory.add(mine[2], LARGE)


def test_small_bodies_are_never_refused() -> None:
    memory = BodyMemory(LARGE)
    for number in range(9):
        with suppress(ApiError):
            memory.add(Sender(str(number)), LARGE)
    memory.add(Sender("me"), SMALL_BODY)
    with pytest.raises(ApiError, match="of all clients") as refused:
        memory.add(Sender("you"), SMALL_BODY + 1)
    assert refused.value.status == 503


@examples(4)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2 * LARGE), st.booleans()), max_size=30))
def test_what_is_released_is_there_again(steps: list[tuple[int, int, bool]]) -> None:
    memory, asking = BodyMemory(8 * LARGE), [Sender(str(number % 2)) for number in range(4)]
    for number, size, release in steps:
        with suppress(ApiError):
            memory.add(asking[number], size)
        if release:
            memory.release(asking[number])
        assert memory.size == sum(each.held for each in asking)
    for each in asking:
        memory.release(each)
        memory.release(each)
    assert (memory.size, len(memory._clients)) == (0, 0)
