"""Streams that go from process to process: every chunk may come to another one, and nothing changes.

Two services that share a secret stand for two processes. Each has parsers of other streams that rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.core.tools import Tools
from unbraid.engines.replay import ReplayEngine
from unbraid.server.errors import ApiError
from unbraid.server.service import Service
from unbraid.server.storage.seal import Seal
from unbraid.server.tokens.readings import LIMITS, Reading, Readings
from unbraid.server.tokens.streams import Streams, TokenStream
from unbraid.server.tokens.wire import ToldState

from ...core.test_token_laws import CASES, format_of, grouped
from ...support import strategies
from ...support.real_tokenizers import encode, qwen3_huggingface
from ...support.running_server import service_of

SECRET = b"s" * 32
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("f", "g")]
BOUND = 1000
"""The bytes of a state as it is told, but for what it repeats of the text."""


def service(name: str = "qwen3", tokenizer: object | None = None) -> Service:
    engine = ReplayEngine([], vocabulary=None, model="m")
    return service_of(engine, name, tokenizer=tokenizer or qwen3_huggingface(), seal=Seal(SECRET))


def reading_of(serving: Service, streams: Streams, **request: Any) -> Reading:
    return streams.readings(serving.models[0]).chat(json.dumps(request).encode())


def size(sealed: bytes) -> int:
    """How large the state is in a reply."""
    return len(msgspec.json.encode(ToldState((sealed,), True, 0, True)))


def held(stream: TokenStream) -> int:
    """How much of the text is in the state, as JSON: what is held back, which may stand there with what it means, and
    the keys of an object, which may not come twice."""
    machine = stream.parser.machine
    scanners = [scanner for frame in machine.stack if (scanner := getattr(frame, "scanner", None)) is not None]
    waits = [
        *(key for scanner in scanners for key in (scanner.member, scanner._key, *scanner.keys)),
        machine.buffer[machine.position :],
        *machine.call.pending,
        *(text for piece in machine.call.held for text in piece[1:3]),
    ]
    return sum(len(json.dumps(text)) + 16 for text in waits)


def folded(deltas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of the deltas."""
    found: dict[str, Any] = {"content": "", "reasoning": "", "tool_calls": {}, "speech": ""}
    for delta in deltas:
        found["content"] += delta["content"] or ""
        found["reasoning"] += delta["reasoning"] or ""
        found["speech"] += delta.get("tts_content", {}).get("tts_text", "")
        for call in delta.get("tool_calls", ()):
            known = found["tool_calls"].setdefault(call["index"], {"arguments": ""})
            if call["id"] is not None:
                known |= {"id": call["id"], "name": call["function"]["name"]}
            known["arguments"] += call["function"]["arguments"] or ""
    return found


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
def test_any_process_can_take_any_chunk(case: str, data: st.DataObject) -> None:
    """Law: at every cut, a stream that goes on elsewhere is the stream as it was; and its state is small."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    serving = [service(name, tokenizer), service(name, tokenizer)]
    processes = [Streams(serving[0], cache_size=data.draw(st.sampled_from([0, 2]))), Streams(serving[1], cache_size=0)]
    tools = data.draw(st.sampled_from([{"tools": TOOLS}, {}]))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    running = []
    for number in range(2):  # two streams through the same processes
        ids = encode(tokenizer, data.draw(strategies.hostile(format)))
        reading = reading_of(serving[0], processes[0], **tools)
        stream = processes[0].begin(reading, [], f"r{number}", 0)
        deltas: list[dict[str, Any]] = []
        running.append((ids, grouped(ids, sizes), processes[0].seal(stream, ""), deltas))
    longest = max(len(groups) for _, groups, _, _ in running)
    sealed = [state for _, _, state, _ in running]
    for at in range(longest):
        for number, (_, groups, _, deltas) in enumerate(running):
            if at >= len(groups):
                continue
            process = data.draw(st.integers(0, 1))
            reading = reading_of(serving[process], processes[process], **tools)
            stream = processes[process].resume(reading, sealed[number], "")
            reason = "length" if at == len(groups) - 1 else None
            deltas.append(msgspec.to_builtins(stream.deltas.delta(stream.feed(groups[at], reason), reading)))
            sealed[number] = processes[process].seal(stream, "")
            assert size(sealed[number]) <= BOUND + 2 * held(stream)
    for ids, groups, _, deltas in running:
        if not groups:
            continue
        whole = unbraid.Parser(
            reading.format,
            tools=Tools(tools.get("tools", ())),
            unknown_tools="emit" if tools else "text",
            tokenizer=tokenizer,
            prompt=[],
            limits=LIMITS,
        )
        whole.feed_tokens(ids)
        whole.finish()
        message = whole.message.to_openai()
        said = folded(deltas)
        assert said["content"] == (message["content"] or "")
        assert said["reasoning"] == (message["reasoning_content"] or "")
        assert said["speech"] == message.get("tts_content", {}).get("tts_text", "")
        calls = [call["function"] for call in message.get("tool_calls", ())]
        assert [(call["name"], call["arguments"]) for call in said["tool_calls"].values()] == [
            (call["name"], call["arguments"]) for call in calls
        ]


def test_a_state_is_no_larger_after_many_tokens() -> None:
    serving = service()
    streams = Streams(serving)
    reading = reading_of(serving, streams, tools=TOOLS)
    sizes = []
    text = (
        "One. " * 200
        + '<tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": "'
        + "x y " * 200
        + '"}]}}\n</tool_call>'
    )
    ids = encode(qwen3_huggingface(), text)
    stream = streams.begin(reading, [], "r", 0)
    for count in range(30):
        for part in grouped(ids, [16]):
            stream.feed(part, None)
            sealed = streams.seal(stream, "")
            stream = streams.resume(reading, sealed, "")
            sizes.append(size(sealed))
        if count == 0:
            first = max(sizes)
    assert max(sizes) <= first + 16  # a few digits more
    assert max(sizes) < BOUND


def test_what_is_held_back_has_a_limit() -> None:
    """A call whose name does not come is text in the end."""
    serving = service()
    streams = Streams(serving, cache_size=0)
    reading = reading_of(serving, streams, tools=TOOLS)
    ids = encode(qwen3_huggingface(), '<tool_call>\n{"arguments": {"a": "')
    more = encode(qwen3_huggingface(), "word " * 100)
    stream = streams.begin(reading, [], "r", 0)
    stream.feed(ids, None)
    largest = 0
    for _ in range(300):
        stream.feed(more, None)
        sealed = streams.seal(stream, "")
        largest = max(largest, size(sealed))
        stream = streams.resume(reading, sealed, "")
    assert LIMITS.held < largest < 4 * LIMITS.held
    assert size(sealed) < BOUND


@pytest.mark.parametrize("cut", [0, 5, 20, 40, -1])
def test_a_state_that_was_changed_is_refused(cut: int) -> None:
    serving = service()
    streams = Streams(serving, cache_size=0)
    reading = reading_of(serving, streams)
    sealed = streams.seal(streams.begin(reading, [], "r", 0), "")
    other = b"A" if sealed[cut] != ord("A") else b"B"
    forged = [
        sealed[:cut] + other + sealed[cut:][1:],
        sealed[:cut],
        sealed + b"AAA",
        b"",
        b"AAA",
        b"\0" * 64,
    ]
    for each in forged:
        if each != sealed:
            with pytest.raises(ApiError, match="stream_state") as refused:
                streams.resume(reading, each, "")
            assert refused.value.status == 400


def test_a_state_is_of_one_client_and_one_request() -> None:
    serving = service()
    for remembered in (0, 8):
        streams = Streams(serving, remembered)
        reading = reading_of(serving, streams, tools=TOOLS)
        sealed = streams.seal(streams.begin(reading, [], "r", 0), "anna")
        with pytest.raises(ApiError, match="another API key"):
            streams.resume(reading, sealed, "bert")
        with pytest.raises(ApiError, match="chat_request"):
            streams.resume(reading_of(serving, streams), sealed, "anna")
        streams.resume(reading, sealed, "anna")


def test_the_order_of_keys_in_a_request_says_nothing() -> None:
    readings = Readings(service().models[0].model)
    first = readings.chat(b'{"tools": [], "messages": [], "separate_reasoning": true}')
    second = readings.chat(b'{"separate_reasoning":true,"temperature":1,"tools":[]}')
    assert first.digest == second.digest


def test_servers_with_other_secrets_refuse_each_other() -> None:
    ours, theirs = service(), service_of(ReplayEngine([]), "qwen3", tokenizer=qwen3_huggingface(), seal=Seal(b"t" * 32))
    sealed = Streams(ours).seal(Streams(ours).begin(reading_of(ours, Streams(ours)), [], "r", 0), "")
    with pytest.raises(ApiError, match="--secret"):
        Streams(theirs).resume(reading_of(theirs, Streams(theirs)), sealed, "")


def test_custom_tools_are_read_across_chunks() -> None:
    serving = service()
    streams = Streams(serving, cache_size=0)
    tools = [{"type": "custom", "custom": {"name": "run"}}]
    reading = reading_of(serving, streams, tools=tools)
    text = '<tool_call>\n{"name": "run", "arguments": {"input": "a\\n\\u00e9 \\"b\\""}}\n</tool_call>'
    stream = streams.begin(reading, [], "r", 0)
    said = ""
    for id in encode(qwen3_huggingface(), text):
        delta = stream.deltas.delta(stream.feed([id], None), stream.reading)
        for call in msgspec.to_builtins(delta).get("tool_calls", ()):
            assert call["type"] in ("custom", None)
            said += call["custom"]["input"]
        stream = streams.resume(reading, streams.seal(stream, ""), "")
    assert said == 'a\né "b"'
    assert stream.deltas.called
