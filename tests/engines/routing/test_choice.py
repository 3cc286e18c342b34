"""Conversations and their replicas: who gets which prompt, what moves when replicas come and go, and the bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid import UnbraidError
from unbraid.engines import Generation, Load
from unbraid.engines.routing import AffinityRules, Replica, Routing
from unbraid.engines.routing.choice import Affinity, choose
from unbraid.engines.server import read_load

from ...support.examples import examples
from ...support.fake_servers import FakeVLLM
from ...support.in_loop import collect, in_loop
from ..http_kinds import HELLO, engine
from .scripted import Clock, Fleet, ScriptedEngine

BLOCK = AffinityRules().block


def fleet(count: int, first: int = 0) -> list[Replica]:
    routing = Routing(clock=Clock())
    return [Replica(ScriptedEngine(Clock()), f"http://gpu-{first + at}", routing) for at in range(count)]


def prompt(of: int, blocks: int = 6) -> tuple[int, ...]:
    """The prompt of a conversation, with so many blocks; more of them are later turns of the same."""
    return tuple(1000 * of + at for at in range(blocks * BLOCK))


def homes(replicas: Sequence[Replica], count: int) -> list[str]:
    """Where prompts go of which nothing is known."""
    affinity = Affinity(AffinityRules())
    found = [affinity.preferred(replicas, affinity.digests(prompt(of))) for of in range(count)]
    return [replica.name for replica in found if replica is not None]


def test_the_same_everywhere() -> None:
    """Servers that know nothing of each other choose alike, in whatever order their replicas are named."""
    assert homes(fleet(5), 200) == homes(list(reversed(fleet(5))), 200)


@given(count=st.integers(2, 12), gone=st.integers(0, 11))
@examples(4)
def test_a_replica_that_comes_or_goes_moves_only_its_share(count: int, gone: int) -> None:
    replicas = fleet(count + 1)
    left = [replica for at, replica in enumerate(replicas) if at != gone % (count + 1)]
    with_it, without_it = homes(replicas, 300), homes(left, 300)
    name = replicas[gone % (count + 1)].name
    assert all(one == other for one, other in zip(with_it, without_it, strict=True) if one != name)
    assert Counter(with_it)[name] < 3 * 300 / (count + 1)


@given(
    count=st.integers(1, 8),
    asked=st.lists(st.integers(0, 3), min_size=1, max_size=120),
    factor=st.sampled_from([1.0, 1.25, 2.0]),
    free=st.integers(1, 6),
)
@examples(6)
def test_no_replica_is_above_the_bound(count: int, asked: list[int], factor: float, free: int) -> None:
    """However many want the same prompt, and though none of them ends."""
    replicas, affinity = fleet(count), Affinity(AffinityRules(factor=factor, free=free))
    for total, of in enumerate(asked):
        digests = affinity.digests(prompt(of))
        found = choose(replicas, [], 0.0, affinity, digests)
        assert found is not None
        affinity.note(digests, found)
        found.running += 1
        assert found.running <= max(free, math.ceil(factor * (total + 1) / count))


def test_a_conversation_stays() -> None:
    """Each turn goes where the turn before it went, also where that was not its home."""
    replicas, affinity = fleet(4), Affinity(AffinityRules())
    for of in range(20):
        first = affinity.preferred(replicas, affinity.digests(prompt(of, 3)))
        other = next(replica for replica in replicas if replica is not first)
        affinity.note(affinity.digests(prompt(of, 3)), other)
        for blocks in range(3, 6):
            digests = affinity.digests((*prompt(of, blocks), 7, 7))
            assert affinity.preferred(replicas, digests) is other
            affinity.note(digests, other)


def test_a_beginning_that_all_share_says_little() -> None:
    """Less than half of a prompt: then the replicas share the work."""
    replicas, affinity = fleet(4), Affinity(AffinityRules(home_blocks=6))
    system = tuple(range(2 * BLOCK))
    found = Counter()  # type: Counter[str]
    for of in range(1, 200):
        digests = affinity.digests((*system, *prompt(of, 4)))
        replica = affinity.preferred(replicas, digests)
        assert replica is not None
        affinity.note(digests, replica)
        found[replica.name] += 1
    assert min(found.values()) > 20


def test_what_is_kept_is_bounded() -> None:
    replicas, affinity = fleet(2), Affinity(AffinityRules(most_known=100, most_blocks=8))
    for of in range(1000):
        affinity.note(affinity.digests(prompt(of, 12)), replicas[0])
        assert len(affinity._cached) <= 100
    assert len(affinity.digests(prompt(1, 12))) == 8


def test_short_prompts_and_none_at_all() -> None:
    affinity = Affinity(AffinityRules())
    assert affinity.digests(()) == affinity.digests("") == affinity.digests(prompt(1, 1)[:-1]) == ()
    assert affinity.preferred(fleet(2), ()) is None
    assert Affinity(AffinityRules(factor=0.0)).digests(prompt(1)) == ()
    assert len(affinity.digests("x" * (4 * BLOCK))) == 1
    with pytest.raises(UnbraidError, match=r"0\.5 times their share"):
        AffinityRules(factor=0.5)


@in_loop
async def test_requests_follow_it() -> None:
    group = Fleet(3)
    for of in range(6):
        before = group.asked()
        for blocks in (2, 3, 4):
            await collect(group.routed.generate(Generation(prompt=prompt(of, blocks))))
        assert sorted(now - then for now, then in zip(group.asked(), before, strict=True)) == [0, 0, 3]
    await group.routed.close()


@in_loop
async def test_a_replica_that_is_left_out_is_not_waited_for() -> None:
    group = Fleet(3)
    asked = Generation(prompt=prompt(1))
    await collect(group.routed.generate(asked))
    home = group.asked().index(1)
    group.routed.replicas[home].breaker.open("it is broken")
    for _ in range(3):
        await collect(group.routed.generate(asked))
    assert sorted(group.asked()) == [0, 1, 3]
    await group.routed.close()


# What replicas say of themselves


@pytest.mark.parametrize(
    ("metrics", "load"),
    [
        ('vllm:num_requests_running{engine="0",model_name="m"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0', (3, 2)),
        ("# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 7\nsglang:num_queue_reqs 1e1", (7, 10)),
        ("llamacpp:requests_processing 2\nllamacpp:requests_deferred 0\n", (2, 0)),
        ('unbraid_engine_running{model="a"} 1.0\nunbraid_engine_running{model="b"} 2.0', (3, 0)),
        ('vllm:num_requests_running{a="}"} 1 1700000000000', (1, 0)),
        ("", None),
        ("<html>", None),
        ("vllm:num_requests_running +-1", None),
        ("vllm:num_requests_running_total 5", None),
    ],
)
def test_metrics(metrics: str, load: tuple[int, int] | None) -> None:
    assert read_load(metrics) == (None if load is None else Load(*load))


@in_loop
async def test_the_least_loaded_by_their_own_word() -> None:
    """A replica that others keep busy gets fewer of our requests."""
    async with FakeVLLM(HELLO) as busy, FakeVLLM(HELLO) as idle:
        busy.metrics = "vllm:num_requests_running 9\nvllm:num_requests_waiting 1\n"
        idle.metrics = "vllm:num_requests_running 0\n"
        one = engine("vllm", busy, idle, model="fake", context=1000)
        for replica in one.replicas:
            assert await replica.check() is None
        assert [replica.load for replica in one.replicas] == [10, 0]
        for _ in range(3):
            await collect(one.generate(Generation(prompt=(1, 2))))
        assert (len(busy.generated), len(idle.generated)) == (0, 3)
        await one.close()
