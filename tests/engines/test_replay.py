"""Scripts and recordings."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.engines import (
    Audio,
    Engine,
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Load,
    Piece,
    Sampling,
    TokenLogprob,
    Unsupported,
)
from unbraid.engines.recording import Recorder, read_recording
from unbraid.engines.replay import ReplayEngine, Script, TimedPiece, script
from unbraid.errors import UnbraidError
from unbraid.tokens import vocabulary as vocabulary_of

from ..support.byte_vocabulary import VOCABULARY
from ..support.in_loop import collect, collect_until_error, in_loop
from ..support.real_tokenizers import step_audio_2
from ..support.spoken_turn import spoken_turn
from ..support.waiting import until

REQUEST = Generation(prompt=(1, 2, 3))


def pieces(one: Script) -> list[Any]:
    return [step.piece.ids or step.piece.text for step in one.steps]


def test_how_a_script_is_cut() -> None:
    assert pieces(script((1, 2, 3, 4, 5), chunks=2)) == [(1, 2), (3, 4), (5,)]
    assert pieces(script((1, 2), "abc")) == [(1,), (2,), "a", "b", "c"]
    by_chance = script(tuple(range(100)), chunks=(1, 5), seed=3)
    assert by_chance == script(tuple(range(100)), chunks=(1, 5), seed=3)
    assert {len(piece) for piece in pieces(by_chance)} == {1, 2, 3, 4, 5}


@given(st.lists(st.integers(0, 9)), st.integers(1, 4), st.integers(0, 3), st.integers())
def test_nothing_is_lost_by_cutting(ids: list[int], least: int, more: int, seed: int) -> None:
    found = pieces(script(ids, chunks=(least, least + more), seed=seed))
    assert [token for piece in found for token in piece] == ids


@in_loop
async def test_scripts_by_order_by_name_and_by_choice() -> None:
    one, two = script("1", name="one"), script("2", name="two")
    ordered = ReplayEngine([one, two])
    said = [(await collect(ordered.generate(REQUEST)))[0].text for _ in range(2)]
    assert said == ["1", "2"]
    with pytest.raises(Unsupported, match="2 scripts, and this is request 3"):
        await collect(ordered.generate(REQUEST))

    named = ReplayEngine({"weather": one, "music": two}, vocabulary=VOCABULARY)
    for prompt in ("weather? no, music!", tuple(b"weather? no, music!")):
        assert (await collect(named.generate(Generation(prompt=prompt))))[0].text == "2"
    with pytest.raises(Unsupported, match="weather, music"):
        await collect(named.generate(Generation(prompt="hello")))

    chosen = ReplayEngine(lambda request: two if request.max_tokens == 2 else one)
    assert (await collect(chosen.generate(Generation(prompt="", max_tokens=2))))[0].text == "2"
    assert chosen.requests == [Generation(prompt="", max_tokens=2)]


@in_loop
async def test_how_a_script_ends() -> None:
    good = script((5, 6, 7))
    for ending, finish in (("length", Finish("length", 3, 3)), (Finish("stop", 9, 9, 9, "x"),) * 2):
        one = ReplayEngine([good.until(3, ending)])  # type: ignore[arg-type]
        assert (await collect(one.generate(REQUEST)))[-1] == finish
    one = ReplayEngine([good.failing(after=2), good.failing(error=EngineDown("full", 4.0))])
    outputs, error = await collect_until_error(one.generate(REQUEST))
    assert isinstance(error, EngineFailed)
    assert outputs == [Piece((5,)), Piece((6,))]
    with pytest.raises(EngineDown) as raised:
        await collect(one.generate(REQUEST))
    assert raised.value.retry_after == 4.0
    assert one.aborted == 0


@in_loop
async def test_closing_stops_at_once() -> None:
    one = ReplayEngine([script("abc").hanging(after=1), script("abc", delay=3600.0), script("abc")])
    hanging = one.generate(REQUEST)
    await anext(hanging)
    await hanging.aclose()
    for engine in (ReplayEngine([script("abc").hanging()]), one):
        task = asyncio.create_task(collect(engine.generate(REQUEST)))
        await until(lambda engine=engine: engine.load.running == 1)  # type: ignore[misc]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await collect(one.generate(REQUEST))
    assert one.aborted == 2


@in_loop
async def test_delays_and_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("unbraid.engines.replay.asyncio.sleep", sleep)
    slow = script("abcd", chunks=2).paced(0.5)
    for speed, delay in ((1.0, 0.5), (2.0, 0.25), (math.inf, 0.0)):
        await collect(ReplayEngine([slow], speed=speed).generate(REQUEST))
        assert slept == [delay, delay]
        slept.clear()


# Recordings


async def record(engine: Engine, path: Path, *requests: Generation) -> list[list[Any]]:
    recorder = Recorder(engine, path)
    assert (recorder.model, recorder.vocabulary, recorder.context) == (engine.model, engine.vocabulary, engine.context)
    await recorder.check()
    outputs = [await collect(recorder.generate(request)) for request in requests]
    await recorder.close()
    return outputs


LOGPROB = TokenLogprob(5, b"\xff", -0.5, (TokenLogprob(6, b"b", -math.inf),))
RICH = Generation(
    prompt="é",
    sampling=Sampling(temperature=0.0, seed=4, logit_bias={7: -1.0}),
    max_tokens=3,
    stop=("\n",),
    stop_tokens=(9,),
    logprobs=1,
    audio=(Audio(b"\x00\xff", "wav"),),
)


@in_loop
async def test_a_recording_plays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    steps = (TimedPiece(Piece((5, 6), logprobs=(LOGPROB,) * 2)), TimedPiece(Piece(text="é\u2028"), 0.05))
    finish = Finish("stop", 3, 3, 1, "\n")
    engine = ReplayEngine([Script(steps, finish), script("x")], model="m", context=77)
    outputs = await record(engine, path, RICH, REQUEST)
    found = read_recording(path)
    assert (found.model, found.context, found.requests) == ("m", 77, [RICH, REQUEST])
    assert 0.04 < found.scripts[0].steps[1].after < 1.0
    again = ReplayEngine(found.scripts, speed=math.inf)
    assert [await collect(again.generate(request)) for request in (RICH, REQUEST)] == outputs
    by_prompt = ReplayEngine(found.find, speed=math.inf)
    assert await collect(by_prompt.generate(REQUEST)) == outputs[1]
    for other in (Generation(prompt="other"), Generation(prompt=RICH.prompt)):  # the second has no audio
        with pytest.raises(Unsupported, match="not recorded"):
            await collect(by_prompt.generate(other))


@in_loop
async def test_what_went_wrong_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    down = EngineDown("full", 4.0)
    down.status = 503
    recorder = Recorder(ReplayEngine([script("ab").failing(1), script("").failing(0, down), script("ab")]), path)
    for _ in range(2):
        with pytest.raises(EngineError):
            await collect(recorder.generate(REQUEST))
    closed = recorder.generate(REQUEST)
    await anext(closed)
    assert recorder.load == Load(running=1)
    await closed.aclose()
    assert recorder.load == Load()
    await recorder.close()
    broken, refused, left = read_recording(path).scripts
    assert isinstance(broken.ending, EngineFailed)
    assert isinstance(refused.ending, EngineDown)
    assert (refused.ending.retry_after, refused.ending.status, broken.ending.status) == (4.0, 503, None)
    assert (pieces(left), left.ending) == (["a"], "abort")


@in_loop
async def test_requests_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    scripts = [script("a" * 5, delay=0.01), script("b" * 5, delay=0.01)]
    recorder = Recorder(ReplayEngine(scripts), path)
    await asyncio.gather(*(collect(recorder.generate(REQUEST)) for _ in scripts))
    await recorder.close()
    assert [pieces(one) for one in read_recording(path).scripts] == [["a"] * 5, ["b"] * 5]


@in_loop
async def test_files_that_are_cut_off_or_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    await record(ReplayEngine([script("abc")]), path, REQUEST)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:9])
    (cut,) = read_recording(path).scripts
    assert pieces(cut) == ["a", "b"]
    assert isinstance(cut.ending, EngineFailed)
    for text in ("", "{}\n", "no\n", lines[0] + '{"of": 3, "after": 0, "text": "a"}\n', lines[0] + "[]\n"):
        path.write_text(text)
        with pytest.raises(UnbraidError, match=r"a\.jsonl"):
            read_recording(path)
    path.write_text(json.dumps({**json.loads(lines[0]), "version": 2}) + "\n")
    with pytest.raises(UnbraidError, match="version 1"):
        read_recording(path)


# Speech


@pytest.mark.parametrize("chunks", [1, 7, (1, 9)])
@in_loop
async def test_a_spoken_turn(chunks: int | tuple[int, int]) -> None:
    turn = spoken_turn()
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    engine = ReplayEngine([script(turn.output, chunks=chunks)], vocabulary=vocabulary_of(step_audio_2()))
    parser = unbraid.parser("step-audio-2", tools=tools, tokenizer=engine.vocabulary, prompt=turn.prompt)
    async for output in engine.generate(Generation(prompt=turn.prompt)):
        if isinstance(output, Piece):
            parser.feed_tokens(output.ids)
        else:
            assert output == Finish("stop", len(turn.prompt), len(turn.output))
    parser.finish()
    message = parser.message
    (speech,) = message.speech
    assert (speech.text, list(speech.codes), len(turn.codes)) == (turn.said, turn.codes, 81)
    assert [(call.name, call.arguments) for call in message.tool_calls] == [(turn.tool, turn.arguments)]
    assert not message.content


@in_loop
async def test_the_memory_of_requests_is_bounded() -> None:
    """A server plays a recording for as long as it runs."""
    engine = ReplayEngine([script("a"), script("b")], repeat=True)
    texts = [(await collect(engine.generate(Generation(prompt=str(number)))))[0].text for number in range(2501)]
    assert texts == ["ab"[number % 2] for number in range(2501)]
    assert 1000 <= len(engine.requests) <= 2000
    assert engine.requests[-1].prompt == "2500"
