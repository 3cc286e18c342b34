"""Ids of calls: none comes twice, and what is remembered of them does not grow."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Limits
from unbraid.core.call_ids import IdSource
from unbraid.core.grammar import CallIds

SHORT = CallIds("", 2)
MOST = 4
given_ids = st.sampled_from(["", "call_0", "call_1", "functions.f:0", "functions.f:1", "x", "\ud83d", "00", "10"])


@given(ids=st.lists(given_ids, max_size=30), style=st.sampled_from([CallIds(), SHORT]), seed=st.integers(0, 9))
def test_no_id_comes_twice(ids: list[str], style: CallIds, seed: int) -> None:
    source = IdSource(style, seed, MOST)
    used: list[str] = []
    kept = 0
    for id in ids:
        known = id in used
        assert (id in source) == known
        claimed = source.claim(id)
        assert claimed not in used
        if id and not known and kept < MOST:
            assert claimed == id
        kept += claimed == id
        used.append(claimed)
        again = IdSource(style, None, MOST)
        again.load(json.loads(json.dumps(source.save())))
        source = again
    assert len(json.dumps(source.save())) < 120


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_processes_do_not_make_the_same_ids() -> None:
    def made() -> str:
        return IdSource(CallIds(), None, MOST).claim("")

    made()  # there is more to draw from now
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, made().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read() not in {made() for _ in range(200)}


def test_a_made_id_is_known_by_its_number() -> None:
    source = IdSource(CallIds(), 7, MOST)
    made = [source.claim("") for _ in range(1000)]
    assert all(id in source for id in made)
    assert "call_" + "0" * 24 not in source
    other = IdSource(CallIds(), 7, MOST)
    assert made[0] not in other
    assert other.claim(made[0]) == made[0]
    assert other.claim("") == made[1]


def test_after_many_calls_with_ids_of_their_own_further_ones_get_others() -> None:
    call = "<|tool_call_begin|>functions.f:{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    text = "<|tool_calls_section_begin|>" + "".join(map(call.format, range(8))) + "<|tool_calls_section_end|>"
    message = unbraid.parse("kimi-k2", text, limits=Limits(ids=5))
    ids = [each.id for each in message.tool_calls]
    assert ids[:5] == [f"functions.f:{at}" for at in range(5)]
    assert len(set(ids)) == 8
