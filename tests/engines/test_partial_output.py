"""Outputs that go on at another replica: from any cut, by every format, once and again, and never endlessly."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

import unbraid
from unbraid.engines import (
    EngineDown,
    EngineError,
    EngineFailed,
    EngineTimeout,
    Finish,
    Generation,
    Piece,
    Sampling,
    TokenLogprob,
)
from unbraid.engines.base import costly_work
from unbraid.engines.http.refusals import refusal
from unbraid.engines.replay import ReplayEngine, Script, TimedPiece, script
from unbraid.engines.routing import RetryRules, Routed, Routing
from unbraid.errors import OverBudget

from ..soak.truth import FORMAT, TOOL, Bytes
from ..support.in_loop import collect, collect_until_error, in_loop

IDS = tuple(range(10, 22))
PROMPT = (1, 2)
GREEDY = Sampling(temperature=0.0)
REQUEST = Generation(prompt=PROMPT, sampling=GREEDY)
QUIET = Routing(check_interval=1e9)
BROKEN = "the script breaks down after 2 pieces"


def routed(*scripts: Script, routing: Routing = QUIET) -> tuple[Routed, list[ReplayEngine]]:
    engines = [ReplayEngine([one], repeat=True) for one in scripts]
    return Routed(engines, routing), engines


def ids_of(outputs: list[Any]) -> tuple[int, ...]:
    return tuple(token for output in outputs if isinstance(output, Piece) for token in output.ids)


def text_of(outputs: list[Any]) -> str:
    return "".join(output.text or "" for output in outputs if isinstance(output, Piece))


@pytest.mark.parametrize("after", range(1, len(IDS) + 1))
@pytest.mark.parametrize("chunks", [1, 3])
@in_loop
async def test_after_any_token(after: int, chunks: int) -> None:
    whole = script(IDS, chunks=chunks)
    one, (dead, well) = routed(whole.failing(after=after), whole)
    outputs = await collect(one.generate(REQUEST))
    came = min(len(IDS), after * chunks)
    assert ids_of(outputs) == IDS
    assert outputs[-1] == Finish("stop", 2, len(IDS))
    [asked] = well.requests
    assert asked.prompt == (*PROMPT, *IDS[:came])
    assert asked.written == came
    assert [replica.moved for replica in one.replicas] == [1, 0]
    assert [replica.failures for replica in one.replicas] == [1, 0]
    assert dead.aborted == 0
    await one.close()


@in_loop
async def test_from_one_to_the_next_and_back() -> None:
    """A replica that has failed is tried again if another has gone on in between."""
    whole = script(IDS)
    broken = [whole.failing(after=3), whole.failing(after=7)]
    engines = [ReplayEngine([broken[0], whole]), ReplayEngine([broken[1]])]
    one = Routed(engines, QUIET)
    outputs = await collect(one.generate(REQUEST))
    assert ids_of(outputs) == IDS
    assert outputs[-1] == Finish("stop", 2, len(IDS))
    assert [request.written for engine in engines for request in engine.requests] == [0, 7, 3]
    await one.close()


@in_loop
async def test_it_has_an_end() -> None:
    """What kills every engine is passed on only so often."""
    whole = script(IDS)
    for most in (0, 1, 3):
        one, engines = routed(*[whole.failing(after=2)] * 9, routing=Routing(retries=RetryRules(most=most)))
        for engine in engines:  # each gives two tokens more
            engine._scripts = lambda request: whole.failing(after=request.written + 2)
        outputs, error = await collect_until_error(one.generate(REQUEST))
        assert ids_of(outputs) == IDS[: 2 * (most + 1)]
        assert type(error) is EngineFailed
        assert sum(len(engine.requests) for engine in engines) == most + 1
        await one.close()


@pytest.mark.parametrize("error", [EngineFailed("it died"), EngineTimeout("it is silent"), refusal(500, "CUDA error")])
@in_loop
async def test_the_budget_counts_it(error: EngineError) -> None:
    """What dies always moves. What fails in another way does so within the budget, which all moves count for."""
    whole = script(IDS)
    rules = RetryRules(share=0.0, minimum=2.0)
    one, engines = routed(whole.failing(after=2, error=error), whole, routing=Routing(retries=rules, clock=lambda: 0.0))
    for replica in one.replicas:
        replica.breaker.open = lambda *_, **__: None  # type: ignore[method-assign]
    found = [await collect_until_error(one.generate(REQUEST)) for _ in range(8)]
    lost = [error for _, error in found if error is not None]
    failed = one.replicas[0].failures
    assert failed > 2
    assert one.replicas[0].moved == (failed if str(error) == "it died" else 2)
    assert len(lost) == failed - one.replicas[0].moved
    assert all("there is none that may be tried now" in str(error) for error in lost)
    engines[0]._scripts = [whole.failing(error=refusal(500, "CUDA error"))]
    found = [await collect_until_error(one.generate(REQUEST)) for _ in range(4)]
    assert [error for _, error in found if error is not None], "nothing is left for requests without output"
    await one.close()


@in_loop
async def test_only_the_end_is_missing() -> None:
    """Nobody has to be asked for it."""
    whole = script(IDS)
    cases: list[tuple[dict[str, Any], Any, int | None]] = [
        ({"stop_tokens": (99, IDS[5])}, "stop", IDS[5]),
        ({"max_tokens": 6}, "length", None),
    ]
    for fields, reason, by in cases:
        one, (_, well) = routed(whole.failing(after=6), whole)
        asked = Generation(prompt=PROMPT, sampling=GREEDY, **fields)
        outputs = await collect(one.generate(asked))
        assert outputs[-1] == Finish(reason, 2, 6, 0, by)
        assert ids_of(outputs) == IDS[:6]
        assert not well.requests
        await one.close()


@in_loop
async def test_logprobs_go_on() -> None:
    steps = tuple(TimedPiece(Piece((token,), logprobs=(TokenLogprob(token, b"x", -0.5),))) for token in IDS)
    whole = Script(steps)
    one, _ = routed(whole.failing(after=5), whole)
    outputs = await collect(one.generate(REQUEST))
    assert [each.token for output in outputs[:-1] for each in output.logprobs] == list(IDS)
    await one.close()


@pytest.mark.parametrize("cut", range(1, 12))
@in_loop
async def test_text_comes_again(cut: int) -> None:
    whole = script("Hello world!")
    one, (_, well) = routed(whole.failing(after=cut), script("Hello world!", chunks=5))
    outputs = await collect(one.generate(REQUEST))
    assert text_of(outputs) == "Hello world!"
    assert well.requests == [REQUEST]
    await one.close()


@in_loop
async def test_text_that_comes_differently_is_lost() -> None:
    for other in ("Hexe", "He", ""):
        one, _ = routed(script("Hello").failing(after=3), script(other, chunks=2))
        outputs, error = await collect_until_error(one.generate(REQUEST))
        assert text_of(outputs) == "Hel"
        assert "it cannot go on at another replica: the output" in str(error)
        assert one.replicas[1].failures == 0
        await one.close()


@in_loop
async def test_text_by_chance_is_lost() -> None:
    one, (_, well) = routed(script("Hello").failing(after=3), script("Hello"))
    outputs, error = await collect_until_error(one.generate(Generation(prompt=PROMPT)))
    assert text_of(outputs) == "Hel"
    assert type(error) is EngineFailed
    assert "it came as text, and was drawn by chance" in str(error)
    assert not well.requests
    await one.close()


@in_loop
async def test_a_seed_is_not_drawn_from_twice() -> None:
    whole = script(IDS)
    seeds = []
    for after in (2, 2, 5):
        one, (_, well) = routed(whole.failing(after=after), whole)
        await collect(one.generate(Generation(prompt=PROMPT, sampling=Sampling(seed=5))))
        seeds.append(well.requests[0].sampling.seed)
        await one.close()
    assert seeds[0] == seeds[1] != seeds[2]
    assert 5 not in seeds


@pytest.mark.parametrize("status", [400, 404, 422])
@in_loop
async def test_what_is_wrong_with_the_request_does_not_move(status: int) -> None:
    error = EngineFailed("the output broke off")
    error.status = status
    one, (_, well) = routed(script(IDS).failing(after=2, error=error), script(IDS))
    _, found = await collect_until_error(one.generate(REQUEST))
    assert isinstance(found, EngineError)
    assert found.status == status
    assert not well.requests
    await one.close()


@pytest.mark.parametrize("error", [EngineDown("it ends"), refusal(500, "CUDA error"), refusal(503, "later", 1.0)])
@in_loop
async def test_all_other_failures_move(error: EngineError) -> None:
    one, _ = routed(script(IDS).failing(after=2, error=error), script(IDS))
    assert ids_of(await collect(one.generate(REQUEST))) == IDS
    await one.close()


@in_loop
async def test_an_output_that_was_given_up_moves() -> None:
    one, _ = routed(script(IDS).until(4, "abort"), script(IDS))
    outputs = await collect(one.generate(REQUEST))
    assert (ids_of(outputs), outputs[-1].reason) == (IDS, "stop")
    await one.close()


@in_loop
async def test_the_only_replica_has_nobody_to_go_on() -> None:
    one, _ = routed(script(IDS).failing(after=2))
    outputs, error = await collect_until_error(one.generate(REQUEST))
    assert ids_of(outputs) == IDS[:2]
    assert str(error) == BROKEN
    await one.close()


@in_loop
async def test_it_is_told_where_it_cannot_go_on(caplog: pytest.LogCaptureFixture) -> None:
    whole = script(IDS)
    one, _ = routed(whole.failing(after=2), whole.failing(error=EngineDown("it restarts")))
    _, error = await collect_until_error(one.generate(REQUEST))
    assert str(error) == f"{BROKEN}; it cannot go on at another replica: it restarts"
    [line] = [record.getMessage() for record in caplog.records if "moves" in record.getMessage()]
    assert (
        line == "an output of 2 tokens so far moves from replica 1 to replica 2: the script breaks down after 2 pieces"
    )
    await one.close()


@in_loop
async def test_outputs_that_move_leave_the_retries_to_requests() -> None:
    """All outputs of a replica that died move, and there may be hundreds. Requests without output need the budget."""
    whole = script(IDS)
    rules = Routing(check_interval=1e9, retries=RetryRules(minimum=0.0, share=0.0, moves=0.0))
    one, _ = routed(whole.failing(after=3), whole, routing=rules)
    assert ids_of(await collect(one.generate(REQUEST))) == IDS
    assert not one._budget._retries
    await one.close()


CONSTRAINED = replace(REQUEST, constraint=unbraid.constraint(FORMAT, tools=[TOOL], tokenizer=Bytes()))
"""A constraint that an output of bytes follows."""


@in_loop
async def test_the_rest_of_a_constraint_is_worked_out_where_the_caller_says() -> None:
    """It may be costly: a server bounds that, and has processes for it."""
    assert CONSTRAINED.constraint is not None
    CONSTRAINED.constraint.to_structural_tag()
    ids = tuple(b"<think>\nWell")
    whole = script(ids)
    one, (_, well) = routed(whole.failing(after=9), whole)
    worked: list[Any] = []

    async def work(function: Any, *args: Any) -> Any:
        worked.append(function)
        return pickle.loads(pickle.dumps(function(*args)))

    token = costly_work.set(work)
    try:
        assert ids_of(await collect(one.generate(CONSTRAINED))) == ids
    finally:
        costly_work.reset(token)
    [function] = worked
    assert pickle.loads(pickle.dumps(function)) is function
    [asked] = well.requests
    assert asked.constraint is not None
    assert list(asked.constraint._printed) == ["structural_tag"]
    await one.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@in_loop
async def test_a_rest_that_is_too_costly(temperature: float) -> None:
    """A greedy output is asked for again from its beginning. One that is drawn by chance is lost, with the reason."""
    ids = tuple(b"<think>\nWell")
    whole = script(ids)
    one, (_, well) = routed(whole.failing(after=9), whole)

    async def work(function: Any, *args: Any) -> Any:
        raise OverBudget("tool 'f': parameters takes more than 10 seconds to work out: simplify it")

    token = costly_work.set(work)
    request = replace(CONSTRAINED, sampling=Sampling(temperature=temperature))
    try:
        if temperature:
            _, error = await collect_until_error(one.generate(request))
            assert "tool 'f': parameters takes more than 10 seconds" in str(error)
        else:
            assert ids_of(await collect(one.generate(request))) == ids
            assert [asked.written for asked in well.requests] == [0]
    finally:
        costly_work.reset(token)
    await one.close()
