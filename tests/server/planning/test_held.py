"""The memory that bodies take together."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.errors import ApiError
from unbraid.server.planning.held import SMALL, HeldBodies
from unbraid.server.planning.sender import Sender

from ...support.examples import examples

LARGE = 10 * SMALL


def test_one_client_has_at_most_half() -> None:
    held = HeldBodies(4 * LARGE)
    mine = [Sender("me") for _ in range(3)]
    held.add(mine[0], LARGE)
    held.add(mine[1], LARGE)
    with pytest.raises(ApiError, match="your large requests") as refused:
        held.add(mine[2], LARGE)
    assert refused.value.status == 429
    held.release(mine[2])
    held.add(Sender("you"), LARGE)
    held.release(mine[0])
    held.add(mine[2], LARGE)


def test_small_bodies_are_never_refused() -> None:
    held = HeldBodies(LARGE)
    for number in range(9):
        with suppress(ApiError):
            held.add(Sender(str(number)), LARGE)
    held.add(Sender("me"), SMALL)
    with pytest.raises(ApiError, match="of all clients") as refused:
        held.add(Sender("you"), SMALL + 1)
    assert refused.value.status == 503


@examples(4)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2 * LARGE), st.booleans()), max_size=30))
def test_what_is_released_is_there_again(steps: list[tuple[int, int, bool]]) -> None:
    held, asking = HeldBodies(8 * LARGE), [Sender(str(number % 2)) for number in range(4)]
    for number, size, release in steps:
        with suppress(ApiError):
            held.add(asking[number], size)
        if release:
            held.release(asking[number])
        assert held.size == sum(each.held for each in asking)
    for each in asking:
        held.release(each)
        held.release(each)
    assert (held.size, len(held._clients)) == (0, 0)
