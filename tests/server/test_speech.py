"""The mixed turn of Step-Audio 2 through the API: speech and a tool call in one reply, with ids and with text only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import httpx
import pytest

from unbraid.engines.recording import read_recording
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.templates import built_in
from unbraid.tokens import vocabulary

from ..support import patient_http
from ..support.places import ROOT
from ..support.real_tokenizers import encode, qwen3_huggingface, speaking, step_audio_2
from ..support.running_server import RunningServer, folded, service_of, serving
from ..support.spoken_turn import SpokenTurn, spoken_turn

CHUNKINGS: list[int | tuple[int, int]] = [1, 2, 3, 5, 17, (1, 9), 10_000]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]


@cache
def turn() -> SpokenTurn:
    return spoken_turn()


@cache
def as_text() -> str:
    """Engines that send text leave out the token that ends it."""
    known = vocabulary(step_audio_2())
    return b"".join(known.token_bytes(token) or b"" for token in turn().output).decode().removesuffix("<|EOT|>")


def scripts(by: str) -> list[Script]:
    output = turn().output if by == "ids" else as_text()
    return [script(output, chunks=chunks) for chunks in CHUNKINGS]


@pytest.fixture(scope="module", params=["ids", "text"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[RunningServer, ReplayEngine]]:
    """Plays the turn, cut in another way for each request."""
    tokenizer = step_audio_2() if request.param == "ids" else None
    known = None if tokenizer is None else vocabulary(tokenizer)
    engine = ReplayEngine(scripts(request.param), vocabulary=known, repeat=True)
    service = service_of(engine, "step-audio-2", tokenizer=tokenizer, template=built_in("step-audio-2"))
    with serving(service) as running:
        yield running, engine


def ask(server: RunningServer, **more: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "明天上海天气怎么样？"}], "tools": TOOLS, "tts_output": True}
    return patient_http.post(f"{server.url}/v1/chat/completions", json={**body, **more})


def chunks_of(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    events = [event for event in response.text.split("\n\n") if event]
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def check(message: dict[str, Any]) -> None:
    said = turn()
    assert message["tts_content"]["tts_text"] == said.said
    codes = message["tts_content"]["tts_audio"]
    assert codes == "".join(f"<audio_{code}>" for code in said.codes)
    assert codes.count("<audio_") == 81
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "search", "arguments": said.arguments}
    assert call["id"]
    assert not message.get("content")
    assert message.get("reasoning_content") is None


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=str)
def test_whole(server: tuple[RunningServer, ReplayEngine], chunking: object) -> None:
    (choice,) = ask(server[0]).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert "reasoning_content" in choice["message"]
    check(choice["message"])


@pytest.mark.parametrize("chunking", CHUNKINGS, ids=str)
def test_streamed(server: tuple[RunningServer, ReplayEngine], chunking: object) -> None:
    chunks = chunks_of(ask(server[0], stream=True))
    message = folded(chunks)[0]
    assert message["finish_reason"] == "tool_calls"
    check(message)


def test_speech_comes_token_by_token_and_in_order(server: tuple[RunningServer, ReplayEngine]) -> None:
    """Each token of speech has a delta of its own, text and audio as the model braided them, then the call."""
    running, engine = server
    while len(engine.requests) % len(CHUNKINGS):  # the next one has one token, or character, at a time
        ask(running)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(ask(running, stream=True))]
    kinds = ["".join(delta.get("tts_content", delta)) for delta in deltas]
    assert kinds[0] == "rolecontent"
    first_call = kinds.index("tool_calls")
    spoken = kinds[1:first_call]
    assert set(spoken) == {"tts_text", "tts_audio"}
    assert set(kinds[first_call:-1]) == {"tool_calls"}
    assert spoken.count("tts_audio") == 81
    turns = sum(1 for one, next_one in pairwise(spoken) if one != next_one)
    assert turns > 10, "text and audio are interleaved"


def test_the_token_is_appended_to_the_prompt(server: tuple[RunningServer, ReplayEngine]) -> None:
    running, engine = server
    ask(running)
    by_flag = engine.requests[-1].prompt
    older = [
        {"role": "user", "content": "明天上海天气怎么样？"},
        {"role": "assistant", "content": "<tts_start>", "eot": False},
    ]
    ask(running, messages=older, tts_output=False)
    assert engine.requests[-1].prompt == by_flag
    if isinstance(by_flag, str):
        assert by_flag.endswith("<|BOT|>assistant\n<tts_start>")
    else:
        assert by_flag[-1] == vocabulary(step_audio_2()).token_id("<tts_start>")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [{"type": "function", "function": {"name": "other"}}]], ids=["none", "others"])
def test_a_call_that_cannot_be_made_is_not_spoken(
    server: tuple[RunningServer, ReplayEngine], stream: bool, tools: list[Any]
) -> None:
    """Without tools it is text. Beside other tools it is a call that fails, so that the model hears of it."""
    response = ask(server[0], tools=tools, stream=stream)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(response)]
        spoken = "".join(delta.get("tts_content", {}).get("tts_text", "") for delta in deltas)
        content = "".join(delta.get("content") or "" for delta in deltas)
        called = any("tool_calls" in delta for delta in deltas)
    else:
        (choice,) = response.json()["choices"]
        spoken, content = choice["message"]["tts_content"]["tts_text"], choice["message"]["content"] or ""
        called = choice["finish_reason"] == "tool_calls"
    assert spoken == turn().said
    assert called == bool(tools)
    assert content.startswith("<tool_call>function\nsearch\n") != called
    assert content.endswith("</tool_call>") != called


OLDER_WAY = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "<tts_start>Well", "eot": False},
]
APPENDED = "TTS output enabled: appended <tts_start> token"


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({}, [APPENDED, "[TTS] is_tts_output: True, from_request: True"]),
        ({"messages": OLDER_WAY, "tts_output": False}, ["[TTS] is_tts_output: True, from_request: False"]),
        ({"messages": OLDER_WAY}, ["[TTS] is_tts_output: True, from_request: True"]),
        ({"tts_output": False}, []),
    ],
)
def test_what_the_log_says_of_speech(
    server: tuple[RunningServer, ReplayEngine],
    caplog: pytest.LogCaptureFixture,
    asked: dict[str, Any],
    lines: list[str],
) -> None:
    running, engine = server
    with caplog.at_level("INFO"):
        assert ask(running, **asked).status_code == 200
    said = [each for each in caplog.records if "tts" in each.getMessage().lower()]
    assert [each.getMessage() for each in said] == lines
    assert {each.levelname for each in said} <= {"INFO"}
    prompt = engine.requests[-1].prompt
    marker: Any = "<tts_start>" if isinstance(prompt, str) else vocabulary(step_audio_2()).token_id("<tts_start>")
    opened = prompt.count(marker)
    assert opened == bool(lines)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by", ["ids", "text"])
@pytest.mark.parametrize("older", [False, True])
def test_a_model_that_cannot_speak_answers_in_text(
    caplog: pytest.LogCaptureFixture, by: str, stream: bool, older: bool
) -> None:
    tokenizer = qwen3_huggingface() if by == "ids" else None
    output = encode(tokenizer, "no<|im_end|>") if tokenizer is not None else "no"
    engine = ReplayEngine([script(output)], vocabulary=None if tokenizer is None else vocabulary(tokenizer))
    asked = {"messages": OLDER_WAY, "tts_output": False} if older else {}
    with serving(service_of(engine, "hermes", tokenizer=tokenizer)) as running, caplog.at_level("INFO"):
        response = ask(running, stream=stream, **asked)
    message = folded(chunks_of(response))[0] if stream else response.json()["choices"][0]["message"]
    assert message["content"] == "no"
    assert "tts_content" not in message
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING" and "spoken" in each.msg]
    assert warning.startswith("the reply is not spoken: tts_output: ")
    assert f"[TTS] is_tts_output: False, from_request: {not older}" in caplog.text
    assert APPENDED not in caplog.text
    (request,) = engine.requests
    prompt = request.prompt
    text = prompt if isinstance(prompt, str) or tokenizer is None else tokenizer.decode(list(prompt))
    assert "tts_start" not in str(text)
    assert not older or str(text).endswith("Well")


def test_a_request_may_insist_on_speech() -> None:
    tokenizer = qwen3_huggingface()
    engine = ReplayEngine([script("no")], vocabulary=vocabulary(tokenizer))
    with serving(service_of(engine, "hermes", tokenizer=tokenizer)) as running:
        response = ask(running, modalities=["text", "audio"])
    assert response.status_code == 400
    assert "'<tts_start>'" in response.json()["error"]["message"]
    assert response.json()["error"]["param"] == "tts_output"


# --- Other models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["ids", "text"])
def test_where_no_marker_opens_speech_the_request_does(by: str) -> None:
    """Text that is spoken is `tts_text`, as with Step-Audio 2. A client that asks for no speech reads it as content."""
    tokenizer = speaking("glm-4-voice") if by == "ids" else None
    spoken, written = "Hi,<|audio_5|><|audio_6|> there<|audio_16383|>", "Hi there"
    outputs = [spoken, spoken, written]
    if tokenizer is not None:
        scripts = [script(encode(tokenizer, f"{output}<|user|>")) for output in outputs]
    else:
        scripts = [script(output, chunks=4) for output in outputs]
    engine = ReplayEngine(scripts, vocabulary=None if tokenizer is None else vocabulary(tokenizer))
    with serving(service_of(engine, "glm-4-voice", tokenizer=tokenizer)) as running:
        (choice,) = ask(running, tools=None).json()["choices"]
        streamed = folded(chunks_of(ask(running, tools=None, stream=True)))[0]
        (silent,) = ask(running, tools=None, tts_output=False).json()["choices"]
    for message in (choice["message"], streamed):
        assert message["tts_content"] == {"tts_text": "Hi, there", "tts_audio": "<audio_5><audio_6><audio_16383>"}
        assert not message.get("content")
    assert silent["message"]["content"] == "Hi there"
    assert "tts_content" not in silent["message"]


def test_json_is_no_speech() -> None:
    engine = ReplayEngine([script('{"a": 1}')])
    asked = {"tools": None, "response_format": {"type": "json_object"}}
    with serving(service_of(engine, "glm-4-voice")) as running:
        refused = ask(running, **asked)
        (choice,) = ask(running, **asked, tts_output=False).json()["choices"]
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "response_format"
    assert choice["message"]["content"] == '{"a": 1}'


def test_the_recorded_example_has_a_call_in_speech_and_one_without() -> None:
    recording = read_recording(ROOT / "examples" / "step-audio-2.jsonl")
    engine = ReplayEngine(recording.scripts, speed=float("inf"))
    service = service_of(engine, "step-audio-2", template=built_in("step-audio-2"))
    with serving(service) as running:
        spoken, silent = (folded(chunks_of(ask(running, stream=True, tts_output=speak)))[0] for speak in (True, False))
    assert spoken["tts_content"]["tts_text"].startswith("Sure, let me look that up.")
    assert spoken["tts_content"]["tts_audio"].count("<audio_") == 20
    assert "tts_content" not in silent
    for message in (spoken, silent):
        assert not message.get("content")
        assert message["finish_reason"] == "tool_calls"
        assert [call["function"] for call in message["tool_calls"]] == [
            {"name": "search", "arguments": '{"query": "今天北京天气"}'}
        ]
