"""Single responses through vLLM's parsers: streamed and whole, beside parsers of vLLM's own."""

from __future__ import annotations

import json

import pytest

import unbraid
from unbraid import Message

from ...support import real_tokenizers
from .cases import (
    encode,
    qwen3,
)
from .server import CALL, Said, Server, ToolParserManager, chat, hermes, mistral, qwen, server_for


def test_all_at_once() -> None:
    said = qwen().said(["<think>", "\nhm", "\n</think>\n\n", "Let me see.\n", CALL, "\n", CALL, "<|im_end|>"])
    assert said == Said("hm", "Let me see.", [("f", '{"a": 1}')] * 2)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("hermes", f"a {CALL} b", Said("", "a  b", [("f", '{"a": 1}')])),
        (
            "qwen3-coder",
            "<tool_call>\n<function=f>\n<parameter=a>\n<b>\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
            "</function>\n</tool_call>",
            Said("", "", [("f", '{"a": "<b>", "n": 3}')]),
        ),
        ("step-audio-2", '<think>\nhm\n</think>\n\na<tool_call>function\nf\n{"a": 1}</tool_call>', None),
        ("mistral", 'a[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]', Said("", "a", [("f", '{"a": 1}')])),
        ("mistral", 'a[TOOL_CALLS]f[ARGS]{"a": 1}', Said("", "a", [("f", '{"a": 1}')])),
    ],
)
def test_token_by_token(name: str, text: str, expected: Said | None) -> None:
    server = server_for(unbraid.find(name))
    ids = encode(server.tokenizer, text)
    expected = expected or Said("hm", "a", [("f", '{"a": 1}')])
    assert server.streamed([[token] for token in ids]) == server.whole(ids) == expected


@pytest.mark.parametrize("version", [7, 11, 13])
def test_mistral_with_its_own_tokenizer(version: int) -> None:
    """Markers are control tokens, which vLLM keeps out of its text."""
    tokenizer = mistral(version)
    name = "unbraid-mistral"
    server = Server(name, name if version == 13 else None, tokenizer)
    made = unbraid.find("mistral").for_version(version)
    call = unbraid.ToolCall("f", '{"a": "[TOOL_CALLS]"}', "abcdefghi")
    parts = (unbraid.Text("reasoning", "hm"),) if version == 13 else ()
    text = unbraid.render(made, Message((*parts, unbraid.Text("content", "Hi"), call, call)))
    ids = [*real_tokenizers.encode(tokenizer.mistral, text), tokenizer.eos_token_id]
    request = chat(skip_special_tokens=True)
    expected = Said("hm" if parts else "", "Hi", [("f", call.arguments)] * 2)
    deltas = [[token] for token in ids]
    assert server.streamed(deltas, request) == server.whole(ids, request) == expected


def test_the_prompt_opens_the_reasoning() -> None:
    """Streamed and not, and where the output breaks off inside of it."""
    opened = "<|im_start|>assistant\n<think>\n"
    assert qwen().said(["hm", "</think>", "a"], prompt=opened) == Said("hm", "a")
    assert qwen().said(["h", "m"], prompt=opened) == Said("hm")
    assert qwen().said(["h", "m"], prompt="<|im_start|>assistant\n") == Said("", "hm")
    assert qwen().said(["h", "m"], prompt=f"{opened}\n</think>\n\n") == Said("", "hm")
    assert qwen().said(["h", "m", "</think>", "a"], prompt=f"{opened}As far as I") == Said("hm", "a")


def test_reasoning_and_calls_of_different_formats() -> None:
    server = Server("unbraid-hermes", "unbraid-mistral", qwen3())
    assert server.said(["[THINK]", "hm", "[/THINK]", "a", CALL]) == Said("hm", "a", [("f", '{"a": 1}')])


def test_what_is_not_asked_for_stays_where_it_is() -> None:
    pieces = ["<think>", "hm", "</think>", CALL]
    text = "".join(pieces)
    assert Server("unbraid-qwen3", None, qwen3()).said(pieces).content == "<think>hm</think>"
    assert Server(None, "unbraid-qwen3", qwen3()).said(pieces) == Said("hm", CALL)
    assert qwen().said(pieces, chat(tool_choice="none")) == Said("hm", CALL)
    assert qwen().said(pieces, chat(tools=None)) == Said("hm", CALL)
    assert qwen().streamed([encode(qwen3(), text)], chat(include_reasoning=False)) == Said("", "", [("f", '{"a": 1}')])


def test_a_call_to_a_tool_that_there_is_not_is_text() -> None:
    forged = CALL.replace('"f"', '"g"')
    assert hermes().said([forged]) == Said("", forged)


def test_only_the_function_that_a_choice_names_can_be_called() -> None:
    """The constraint sees to it; where nobody enforces that, another call is text."""
    named = chat(tool_choice={"type": "function", "function": {"name": "get_weather"}})
    assert hermes().said([CALL], named) == Said("", CALL)
    named = chat(tool_choice={"type": "function", "function": {"name": "f"}})
    assert hermes().said([CALL], named) == Said("", "", [("f", '{"a": 1}')])


@pytest.mark.parametrize("format", ["ernie-4.5", "deepseek-r1", "step-3", "gigachat-3.5", "hermes"])
def test_a_tool_parser_begins_in_the_content(format: str) -> None:
    """Beside a reasoning parser of vLLM's, also where prompts open the reasoning: what comes to it is no reasoning."""
    written = unbraid.render(format, Message((unbraid.ToolCall("f", '{"a": 1}'),)))
    parser = ToolParserManager.get_tool_parser(f"unbraid-{format}")(qwen3())
    (call,) = parser.extract_tool_calls(written, chat()).tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("f", {"a": 1})


def test_a_tokenizer_that_tells_no_special_tokens() -> None:
    """vLLM asks little of tokenizers; what it does not ask for may be missing."""

    class Tokenizer:
        def get_vocab(self) -> dict[str, int]:
            return {}

    parser = ToolParserManager.get_tool_parser("unbraid-hermes")(Tokenizer())
    assert not parser.adjust_request(chat()).skip_special_tokens
    (call,) = parser.extract_tool_calls(CALL, chat()).tool_calls
    assert call.function.name == "f"


def test_what_is_held_back_comes_at_the_end() -> None:
    """Save a call that is cut off before its name: law 16."""
    tokenizer = qwen3()
    for text, shown in (("a\n\n", "a\n\n"), ("a\n<tool_call>\n{", "a")):
        for last in (None, ""):
            said = hermes().streamed([[token] for token in encode(tokenizer, text)], last=last)
            assert said == Said("", shown)


def test_speech_stays_in_the_content() -> None:
    """As it was written, so that it can be taken apart."""
    server = server_for(unbraid.find("step-audio-2"))
    text = "<tts_start>Hi<audio_3><audio_4> you<tts_end>"
    said = server.said(["<think>\nhm\n</think>\n\n", "<tts_start>", "Hi<audio_3>", "<audio_4>", " you", "<tts_end>"])
    assert said == Said("hm", text)
    (spoken,) = unbraid.parse("step-audio-2", said.content).speech
    assert (spoken.text, spoken.codes) == ("Hi you", (3, 4))


def test_what_is_sent() -> None:
    """Nothing but what there is to say: clients look at which fields there are."""
    tokenizer, request = qwen3(), chat()
    parser = qwen().parser(tokenizer, request.tools)
    deltas = [encode(tokenizer, piece) for piece in ("<think>", "hm", "</think>", "a", CALL)]
    sent = [parser.parse_delta("", ids, request, [], finished=False) for ids in deltas]
    assert sent[0] is sent[2] is None
    dumped = [json.loads(delta.model_dump_json(exclude_unset=True)) for delta in (sent[1], sent[3], sent[4])]
    assert dumped[:2] == [{"reasoning": "hm"}, {"content": "a"}]
    (call,) = dumped[2]["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"index": 0, "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_tokens_of_the_reasoning() -> None:
    tokenizer, request = qwen3(), chat()
    parser = qwen().parser(tokenizer, request.tools)
    ids = encode(tokenizer, "one two</think>three")
    parser.parse_delta("", ids, request, encode(tokenizer, "<think>"), finished=True)
    assert parser.count_reasoning_tokens(tuple(ids)) == 2
    # Where vLLM runs tools itself, the next output has a prompt of its own.
    parser.set_prompt_token_ids(encode(tokenizer, "<think>"))
    assert parser.count_reasoning_tokens(encode(tokenizer, "one</think>")) == 1


# Beside the parsers of others


def test_beside_a_reasoning_parser_of_vllm() -> None:
    server = Server("unbraid-hermes", "deepseek_r1", qwen3())
    said = server.streamed([encode(qwen3(), piece) for piece in ("<think>", "hm", "</think>", "a", *CALL, " b")])
    assert said == Said("hm", "a b", [("f", '{"a": 1}')])


def test_beside_a_tool_parser_of_vllm() -> None:
    server = Server("hermes", "unbraid-qwen3", qwen3())
    text = f"<think>\nhm\n</think>\n\nLet me see. {CALL}"
    ids = encode(qwen3(), text)
    expected = Said("hm", "Let me see. ", [("f", '{"a": 1}')])
    assert server.streamed([[token] for token in ids]) == server.whole(ids) == expected
    # A model that does not reason, and one whose reasoning the prompt has opened.
    assert server.streamed([[token] for token in encode(qwen3(), CALL)]).calls
    opened = server.streamed([[token] for token in encode(qwen3(), f"hm</think>{CALL}")], prompt="<think>\n")
    assert opened == Said("hm", "", [("f", '{"a": 1}')])


# What vLLM's own parsers get wrong (0.32)


@pytest.mark.parametrize(
    ("name", "pieces", "content", "calls"),
    [
        # `mistral` streams the arguments as `: {"a": "b"}`.
        ("mistral", ["[TOOL_CALLS]", '[{"name": "f", "arguments"', ': {"a": "b"}}]'], "", ['{"a": "b"}']),
        # `mistral` takes the marker in the string for the next call.
        ("mistral", ["[TOOL_CALLS]", "f", '[ARGS]{"a": "[TOOL_CALLS]"}'], "", ['{"a": "[TOOL_CALLS]"}']),
        # `hermes` ends the call inside the string.
        (
            "hermes",
            ["<tool_call>", '{"name": "f", "arguments": {"a": "</tool', '_call>"}}', "</tool_call>"],
            "",
            ['{"a": "</tool_call>"}'],
        ),
        # `hermes` loses what follows a call,
        ("hermes", [CALL, " and more."], " and more.", ['{"a": 1}']),
        # and what stands between two,
        ("hermes", [CALL, " then ", CALL], " then ", ['{"a": 1}'] * 2),
        # streams the name as a part of arguments that come first,
        ("hermes", ['<tool_call>{"arguments": {"a": ', '1}, "name": "f"}</tool_call>'], "", ['{"a": 1}']),
        # spells numbers anew in whole replies,
        ("hermes", ['<tool_call>{"name": "f", "arguments": {"n": 1e2}}</tool_call>'], "", ['{"n": 1e2}']),
        # and loses an explanation of calls.
        ("hermes", ["It is ", "<tool_call>", " and ", "</tool_call>", "."], "It is <tool_call> and </tool_call>.", []),
    ],
)
def test_where_vllm_goes_wrong(name: str, pieces: list[str], content: str, calls: list[str]) -> None:
    server = Server(f"unbraid-{name}", None, qwen3())
    assert server.said(pieces) == Said("", content, [("f", arguments) for arguments in calls])


def test_an_answer_without_reasoning_is_an_answer() -> None:
    """vLLM's `qwen3` takes it for reasoning."""
    assert qwen().said(["Hel", "lo"], prompt="<|im_start|>assistant\n") == Said("", "Hello")
