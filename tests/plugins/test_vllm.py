"""vLLM's plug-in against vLLM's own classes: made, asked and ended as its server does it. No model is needed.

Where there is no vLLM (`scripts/install-vllm` installs it), all is skipped; `test_plugin_vllm_reading.py` is not.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid import Format, Message

from ..support import real_tokenizers, strategies
from ..support.examples import examples
from ..support.places import ROOT
from .vllm_cases import (
    decode,
    encode,
    every_format,
    every_format_with_reasoning,
    every_format_with_tools,
    grouped,
    qwen3,
    tokenizer_for,
)

CommonTokenizer = pytest.importorskip("mistral_common.tokens.tokenizers.mistral").MistralTokenizer
vllm = partial(pytest.importorskip, reason="vLLM is not installed here: make test-engines")
ChatCompletionRequest = vllm("vllm.entrypoints.openai.chat_completion.protocol").ChatCompletionRequest
ResponsesRequest = vllm("vllm.entrypoints.openai.responses.protocol").ResponsesRequest
ParserManager = vllm("vllm.parser").ParserManager
DelegatingParser = vllm("vllm.parser.abstract_parser").DelegatingParser
HarmonyParser = vllm("vllm.parser.harmony").HarmonyParser
VLLMValidationError = vllm("vllm.exceptions").VLLMValidationError
ReasoningParserManager = vllm("vllm.reasoning").ReasoningParserManager
ToolParserManager = vllm("vllm.tool_parsers").ToolParserManager
MistralTokenizer = vllm("vllm.tokenizers.mistral").MistralTokenizer
get_cached_tokenizer = vllm("vllm.tokenizers.hf").get_cached_tokenizer
importlib.import_module("unbraid.plugins.vllm").register()
WholeParser = importlib.import_module("unbraid.plugins.vllm.whole").WholeParser

STRICT = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"parameters": {"type": "object"}, **tool}} for tool in strategies.TOOLS]
WEATHER = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": STRICT}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@dataclass
class Said:
    """What a client is told."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)

    def add(self, delta: Any) -> None:
        if delta is None:
            return
        self.reasoning += delta.reasoning or ""
        self.content += delta.content or ""
        for call in delta.tool_calls:
            if call.id is not None:
                assert call.index == len(self.calls)
                assert call.type == "function"
                self.calls.append((call.function.name, ""))
            else:
                assert call.function.name is None
                assert call.index == len(self.calls) - 1
            name, arguments = self.calls[call.index]
            self.calls[call.index] = (name, arguments + (call.function.arguments or ""))

    @classmethod
    def of(cls, message: Message) -> Said:
        return cls(message.reasoning, message.content, [(call.name, call.arguments) for call in message.tool_calls])


@dataclass
class Server:
    """vLLM's server, as far as it parses."""

    tool_parser: str | None
    reasoning_parser: str | None
    tokenizer: Any

    @property
    def parser(self) -> Any:
        return _composed(self.tool_parser, self.reasoning_parser, self.tokenizer)

    def adjusted(self, request: Any) -> Any:
        return self.parser(self.tokenizer, request.tools).adjust_request(request)

    def streamed(
        self, deltas: Sequence[Sequence[int]], request: Any | None = None, prompt: str = "", last: str | None = None
    ) -> Said:
        request = self.adjusted(request or chat())
        parser, said = self.parser(self.tokenizer, request.tools), Said()
        start = encode(self.tokenizer, prompt)
        for at, ids in enumerate(deltas):
            finished = last is None and at == len(deltas) - 1
            said.add(parser.parse_delta(decode(self.tokenizer, ids), list(ids), request, start, finished=finished))
        if last is not None:
            said.add(parser.parse_delta(last, [], request, start, finished=True))
        return said

    def whole(self, ids: Sequence[int], request: Any | None = None, prompt: str = "") -> Said:
        request = self.adjusted(request or chat())
        parser = self.parser(self.tokenizer, request.tools)
        parser.set_prompt_token_ids(encode(self.tokenizer, prompt))
        reasoning, content, calls = parser.parse(decode(self.tokenizer, ids), request, True, tuple(ids))
        return Said(reasoning or "", content or "", [(call.name, call.arguments) for call in calls or ()])

    def said(self, pieces: Sequence[str], request: Any | None = None, prompt: str = "") -> Said:
        """Streamed in these pieces, and whole, which is the same."""
        deltas = [encode(self.tokenizer, piece) for piece in pieces]
        streamed = self.streamed(deltas, request, prompt)
        assert streamed == self.whole([token for ids in deltas for token in ids], request, prompt)
        return streamed


@cache
def _composed(tool_parser: str | None, reasoning_parser: str | None, tokenizer: Any) -> Any:
    return ParserManager.get_parser(
        tool_parser_name=tool_parser,
        reasoning_parser_name=reasoning_parser,
        enable_auto_tools=True,
        tokenizer=get_cached_tokenizer(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer,
    )


def chat(**fields: Any) -> Any:
    given = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, **fields}
    return ChatCompletionRequest.model_validate(given)


def server_for(format: Format) -> Server:
    name = f"unbraid-{format.name}"
    return Server(name if format.tools else None, name if format.reasoning else None, tokenizer_for(format))


def hermes(tokenizer: Any = None) -> Server:
    return Server("unbraid-hermes", None, tokenizer or qwen3())


def qwen() -> Server:
    return Server("unbraid-qwen3", "unbraid-qwen3", qwen3())


# What is known


def test_every_format_is_known_by_every_name() -> None:
    for format, aliases in unbraid.all_formats().items():
        for name in (format.name, *aliases):
            for manager, has in ((ToolParserManager, format.tools), (ReasoningParserManager, format.reasoning)):
                assert (f"unbraid-{name}" in manager.list_registered()) is (has is not None)


def test_one_parser_of_the_two() -> None:
    tokenizer = qwen3()
    importlib.import_module("unbraid.plugins.vllm").register()  # a second time changes nothing
    for tool, reasoning, whole in (
        ("unbraid-hermes", "unbraid-deepseek-r1", True),
        ("unbraid-hermes", None, True),
        (None, "unbraid-qwen3", True),
        ("unbraid-hermes", "qwen3", False),
        ("hermes", "unbraid-qwen3", False),
        ("hermes", "qwen3", False),
    ):
        made = _composed(tool, reasoning, tokenizer)
        assert issubclass(made, DelegatingParser)
        assert issubclass(made, WholeParser) is whole
        assert sum(issubclass(base, WholeParser) for base in made.__mro__) == (2 if whole else 0)
    assert ParserManager.get_parser() is None


def test_a_parser_that_the_server_relies_on_stays() -> None:
    """For gpt-oss vLLM takes the outputs apart by itself."""
    made = ParserManager.get_parser("unbraid-hermes", "unbraid-harmony", True, is_harmony=True)
    try:
        assert made is HarmonyParser
    finally:
        HarmonyParser.tool_parser_cls = HarmonyParser.reasoning_parser_cls = None


def test_what_others_make_of_our_parsers_is_theirs() -> None:
    parts = {"tool_parser_cls": ToolParserManager.get_tool_parser("unbraid-hermes")}
    assert type("Own", (DelegatingParser,), parts).__bases__ == (DelegatingParser,)


def test_a_tokenizer_without_the_tokens_is_refused_at_the_start() -> None:
    with pytest.raises(TypeError, match="needs tokens that this tokenizer does not have: <tts_start>"):
        _composed("unbraid-step-audio-2", None, qwen3())


LOADED_AS_A_FILE = """
import sys
from vllm.tool_parsers import ToolParserManager
from vllm.reasoning import ReasoningParserManager
ToolParserManager.import_tool_parser("unbraid/plugins/vllm/plugin.py")
ReasoningParserManager.import_reasoning_parser("unbraid/plugins/vllm/plugin.py")
assert "unbraid-hermes" in ToolParserManager.list_registered()
assert "unbraid-qwen3" in ReasoningParserManager.list_registered()
assert "vllm.logits_process" not in sys.modules
import vllm, vllm.logits_process
assert vllm.tool_parsers.ToolParserManager is ToolParserManager
print(vllm.__version__, sys.modules["unbraid"].__file__)
"""


def test_loaded_as_a_file() -> None:
    """As by `--tool-parser-plugin unbraid/plugins/vllm/plugin.py`."""
    command = [sys.executable, "-I", "-c", LOADED_AS_A_FILE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split()[1:] == [str(ROOT / "unbraid" / "__init__.py")], done.stderr


# The laws, through vLLM


@every_format
@examples(2.5)
@given(data=st.data())
def test_streamed_and_whole_are_what_unbraid_says(format: Format, data: st.DataObject) -> None:
    server = server_for(format)
    message = data.draw(strategies.messages(format).filter(lambda message: not message.speech))
    ids = encode(server.tokenizer, unbraid.render(format, message))
    tools = TOOLS if format.tools else []
    expected = unbraid.parse(format, ids, tools=tools, tokenizer=server.tokenizer, prompt="")
    for sizes in ([1], data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))):
        assert server.streamed([*grouped(ids, sizes), []]) == Said.of(expected)
    assert server.whole(ids) == Said.of(expected.settled())


@every_format
@examples(2.5)
@given(data=st.data())
def test_whatever_comes(format: Format, data: st.DataObject) -> None:
    """Text, since vLLM cuts stop texts off; hostile, since models are."""
    server = server_for(format)
    text = data.draw(strategies.hostile(format).filter(lambda text: not _speaks(text, format)))
    request = server.adjusted(chat(stop=["\n\n\n"]))
    parser, said = server.parser(server.tokenizer, request.tools), Said()
    pieces = data.draw(st.composite(strategies.cuts)(text))
    for at, piece in enumerate(pieces):
        said.add(parser.parse_delta(piece, [1], request, [], finished=at == len(pieces) - 1))
    assert said == Said.of(unbraid.parse(format, text, tools=TOOLS if format.tools else [], prompt=""))


def _speaks(text: str, format: Format) -> bool:
    return format.speech is not None and any(part in text for part in ("tts_", "audio_"))


@every_format_with_tools
@examples(2.5)
@given(data=st.data())
def test_a_tool_parser_on_its_own(format: Format, data: st.DataObject) -> None:
    """As another server would use it, or vLLM beside a reasoning parser of its own: on text."""
    tokenizer, request = tokenizer_for(format), chat()
    text = data.draw(strategies.hostile(format).filter(lambda text: not _speaks(text, format)))
    expected = unbraid.parse(format, text, tools=TOOLS, separate_reasoning=False)
    parser, said = ToolParserManager.get_tool_parser(f"unbraid-{format.name}")(tokenizer, request.tools), Said()
    before = ""
    for piece in data.draw(st.composite(strategies.cuts)(text)):
        said.add(parser.extract_tool_calls_streaming(before, before + piece, piece, [], [], [], request))
        before += piece
    assert parser.get_remaining_unstreamed_args() == ""
    said.add(parser.finish_streaming())
    assert parser.finish_streaming() is None
    assert said == Said.of(expected)
    assert parser.streamed_args_for_tool == [arguments for _, arguments in said.calls]
    assert [call["name"] for call in parser.prev_tool_call_arr] == [name for name, _ in said.calls]
    assert parser.get_remaining_unstreamed_args() == ""
    found = parser.extract_tool_calls(text, request)
    settled = Said.of(expected.settled())
    assert (found.content or "") == settled.content
    assert [(call.function.name, call.function.arguments) for call in found.tool_calls] == settled.calls
    assert found.tools_called is bool(settled.calls)


@every_format_with_reasoning
@examples(2.5)
@given(data=st.data())
def test_a_reasoning_parser_on_its_own(format: Format, data: st.DataObject) -> None:
    assert format.reasoning is not None
    made = ReasoningParserManager.get_reasoning_parser(f"unbraid-{format.name}")
    thought, answer = data.draw(strategies.texts(format)), data.draw(strategies.texts(format))
    text = f"{format.reasoning.open}{thought}{format.reasoning.close}{answer}"
    parsed = unbraid.parse(format, text)
    parser, said, before = made(tokenizer_for(format), chat_template_kwargs={}), Said(), ""
    for piece in data.draw(st.composite(strategies.cuts)(text)):
        said.add(parser.extract_reasoning_streaming(before, before + piece, piece, [], [], []))
        before += piece
    said.add(parser.finish_streaming())
    assert (said.reasoning, said.content) == (parsed.reasoning, parsed.content)
    assert parser.extract_reasoning(text, chat()) == (parsed.reasoning or None, parsed.content or None)


# One response


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
    tokenizer = _mistral(version)
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


@cache
def _mistral(version: int) -> Any:
    """vLLM's tokenizer for Mistral, from a file such as these models come with."""
    held: Any = real_tokenizers.mistral(version, tekken=True).instruct_tokenizer.tokenizer
    special = [
        {"rank": token, "token_str": held.id_to_piece(token), "is_control": True}
        for token in range(held.num_special_tokens)
    ]
    data = json.loads((CommonTokenizer._data_path() / "tekken_240718.json").read_text(encoding="utf-8"))
    data["config"]["version"] = f"v{version}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tekken.json").write_text(json.dumps({**data, "special_tokens": special}), encoding="utf-8")
        return MistralTokenizer.from_pretrained(folder)


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


def test_nothing_is_lost_at_the_end() -> None:
    tokenizer = qwen3()
    held = encode(tokenizer, "a\n") + encode(tokenizer, "<tool_call>\n{")
    for last in (None, ""):
        assert hermes().streamed([[token] for token in held], last=last) == Said("", "a\n<tool_call>\n{")


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


# Where the reasoning ends, in ids: what vLLM's engine asks, step by step


def reasoning_parser(name: str, tokenizer: Any) -> Any:
    # As the engine makes it.
    return ReasoningParserManager.get_reasoning_parser(name)(tokenizer=tokenizer, chat_template_kwargs={})


@pytest.mark.parametrize(
    ("prompt", "ended"),
    [
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>assistant\n<think>\n", False),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", True),
        ("<|im_start|>assistant\n<think>\na</think>b<|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_reasoning_that_a_prompt_has_ended(prompt: str, ended: bool) -> None:
    assert reasoning_parser("unbraid-qwen3", qwen3()).is_reasoning_end(encode(qwen3(), prompt)) is ended


@pytest.mark.parametrize(
    ("prompt", "output", "rest"),
    [
        ("<|im_start|>assistant\n", "<think>\nhm\n</think>\n\na", "a"),
        ("<|im_start|>assistant\n<think>\n", "hm\n</think>\n\na", "a"),
        # A model that leaves the reasoning out is held to what was asked for from its second token on.
        ("<|im_start|>assistant\n", "\n\nHello there", "there"),
        ("<|im_start|>assistant\n", "<think>\nit does not end", None),
        ("<|im_start|>assistant\n<think>\n", "it does not end, although it is long" * 3, None),
    ],
)
@pytest.mark.parametrize("format", ["qwen3", "step-audio-2"])
def test_reasoning_that_an_output_ends(format: str, prompt: str, output: str, rest: str | None) -> None:
    tokenizer = tokenizer_for(unbraid.find(format))
    parser = reasoning_parser(f"unbraid-{format}", tokenizer)
    ids, new = encode(tokenizer, prompt), encode(tokenizer, output)
    ended = None
    for at, token in enumerate(new):
        ids.append(token)
        if parser.is_reasoning_end_streaming(ids, iter([token])):
            ended = decode(tokenizer, new[at + 1 :]).strip()
            break
    assert ended == rest


def test_ids_of_the_content() -> None:
    tokenizer = qwen3()

    def content(name: str, text: str) -> str:
        return decode(tokenizer, reasoning_parser(name, tokenizer).extract_content_ids(encode(tokenizer, text)))

    assert content("unbraid-qwen3", "<think>hm</think>a b") == "a b"
    assert content("unbraid-qwen3", "<think>hm") == ""
    assert content("unbraid-qwen3", "a b") == "a b"
    assert content("unbraid-qwen3-thinking", "a b") == ""
    assert content("unbraid-mistral", "[THINK]hm[/THINK]a b") == "a b"


def test_markers_for_a_budget() -> None:
    parser = reasoning_parser("unbraid-qwen3", qwen3())
    assert (parser.reasoning_start_str, parser.reasoning_end_str) == ("<think>", "</think>")


# What vLLM is asked to enforce


def enforced(request: Any) -> dict[str, Any] | None:
    if request.structured_outputs is None:
        return None
    given = request.structured_outputs.structural_tag
    assert given is not None
    return dict(json.loads(given))


def expected(name: str, **options: Any) -> dict[str, Any]:
    return unbraid.constraint(name, tokenizer=qwen3(), **options).to_structural_tag()


@pytest.mark.parametrize(
    "asked",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": "auto", "tools": [WEATHER]},
        {"tool_choice": "auto", "parallel_tool_calls": False},
        {"tool_choice": "auto", "response_format": {"type": "json_object"}},
    ],
)
def test_calls_are_enforced(asked: dict[str, Any]) -> None:
    asked = {"tools": TOOLS, **asked}
    for server, name in ((hermes(), "hermes"), (qwen(), "qwen3")):
        request = server.adjusted(chat(**asked))
        assert enforced(request) == expected(name, **asked)
        assert request.response_format is None
        # The constraint begins with the reasoning: vLLM is not to wait for its end.
        assert request._grammar_from_parser is (name == "qwen3")
        assert request.resolve_reasoning_ended(server.parser(server.tokenizer), []) is (
            True if name == "qwen3" else None
        )


def test_calls_that_nothing_is_asked_of_are_not_enforced() -> None:
    for fields in ({}, {"tool_choice": "auto"}, {"tool_choice": "none", "tools": [WEATHER]}, {"tools": None}):
        assert enforced(qwen().adjusted(chat(**fields))) is None
    # An answer that was asked for in other words is left to vLLM.
    regex = qwen().adjusted(chat(tools=[WEATHER], structured_outputs={"regex": "a+"}))
    assert (regex.structured_outputs.regex, regex.structured_outputs.structural_tag) == ("a+", None)
    only_json = qwen().adjusted(chat(tools=None, response_format={"type": "json_object"}))
    assert only_json.response_format.type == "json_object"


def test_strict_arguments_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENFORCE_STRICT_TOOL_CALLING", "0")
    assert enforced(qwen().adjusted(chat(tools=[WEATHER]))) is None
    assert enforced(qwen().adjusted(chat(tools=[WEATHER], tool_choice="required"))) is not None


@pytest.mark.parametrize("level", ["function", "parameter"])
def test_the_strict_level_of_the_server(level: str) -> None:
    tokenizer = qwen3()
    made = ParserManager.get_parser("unbraid-hermes", enable_auto_tools=True, tool_strict_level=level)
    loose = {"type": "function", "function": {"name": "get_weather", "parameters": STRICT}}
    request = made(tokenizer).adjust_request(chat(tools=[loose]))
    assert enforced(request) == expected("hermes", tools=[WEATHER if level == "parameter" else loose])


def test_another_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBRAID_VLLM_DIALECT", "lark")
    request = hermes().adjusted(chat(tool_choice="required"))
    wanted = unbraid.constraint("hermes", tools=TOOLS, tool_choice="required", tokenizer=qwen3()).to_lark()
    assert request.structured_outputs.grammar == wanted
    monkeypatch.setenv("UNBRAID_VLLM_DIALECT", "larck")
    with pytest.raises(
        ValueError, match="UNBRAID_VLLM_DIALECT is one of structural_tag, ebnf, lark, regex, not 'larck'"
    ):
        hermes().adjusted(chat(tool_choice="required"))


def test_tools_that_are_wrong_are_refused() -> None:
    wrong = {"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}
    with pytest.raises(ValueError, match="'objekt' is no JSON schema type"):
        hermes().adjusted(chat(tools=[wrong]))


def test_special_markers_are_shown_where_text_is_read() -> None:
    tokenizer = _mistral(11)
    server = Server("unbraid-mistral", None, tokenizer)
    assert server.adjusted(chat()).skip_special_tokens  # by ids: vLLM's text is not looked at
    assert not server.adjusted(chat(stop=["x"])).skip_special_tokens
    assert hermes().adjusted(chat(stop=["x"])).skip_special_tokens  # Qwen's markers are text to vLLM
    alone = ToolParserManager.get_tool_parser("unbraid-mistral")(tokenizer)
    assert not alone.adjust_request(chat()).skip_special_tokens
    thinking = ReasoningParserManager.get_reasoning_parser("unbraid-mistral")(_mistral(13))
    assert not thinking.adjust_request(chat()).skip_special_tokens


def test_the_other_api() -> None:
    """`/v1/responses` has other requests. Its engine waits for the end of the reasoning, and the constraint begins
    there."""
    tool = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        request = qwen().adjusted(ResponsesRequest(input="Hi", tools=[tool], tool_choice=choice))
        named = {"type": "function", "function": {"name": "get_weather"}} if isinstance(choice, dict) else choice
        wanted = expected("qwen3", tools=[WEATHER], tool_choice=named, reasoning=False, prompt="")
        assert enforced(request) == wanted
        assert request.extract_structured_outputs() is request.structured_outputs
    said = qwen().said(["<think>", "hm", "</think>", '<tool_call>{"name": "get_weather", "arguments": {}}'], request)
    assert said == Said("hm", "", [("get_weather", "{}")])


def test_tools_that_are_shown_as_functions() -> None:
    """A tool that takes a text, and functions in a namespace: vLLM tells the model of them as of any other."""
    custom = {"type": "custom", "name": "shell"}
    member = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "ns", "description": "Some.", "tools": [member]}
    for tool, name, arguments in ((custom, "shell", '{"input": "ls"}'), (space, "ns__f", '{"a": 1}')):
        made = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
        assert qwen().said([made], ResponsesRequest(input="Hi", tools=[tool])) == Said("", "", [(name, arguments)])
        required = qwen().adjusted(ResponsesRequest(input="Hi", tools=[tool], tool_choice="required"))
        assert name in required.structured_outputs.structural_tag
    choice = {"type": "custom", "name": "shell"}
    named = qwen().adjusted(ResponsesRequest(input="Hi", tools=[custom, space], tool_choice=choice))
    assert "shell" in named.structured_outputs.structural_tag
    assert "ns__f" not in named.structured_outputs.structural_tag
    with pytest.raises(VLLMValidationError, match="no function tool the model can call"):
        qwen().adjusted(ResponsesRequest(input="Hi", tools=[{"type": "web_search_preview"}], tool_choice="required"))
