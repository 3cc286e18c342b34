"""Our detectors in SGLang's registries, beside its own or in their place."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import unbraid
from unbraid import Format
from unbraid.plugins import sglang as plugin

from .cases import FORMATS, REPLACED, a_turn, every_format, streamed, tools


@pytest.fixture
def registration(sglang: Any) -> Any:
    return importlib.import_module("unbraid.plugins.sglang.registration")


def test_every_format_has_its_names(sglang: Any) -> None:
    names = plugin.install()
    for format in FORMATS:
        for name in (format.name, *unbraid.all_formats()[format]):
            assert (f"unbraid-{name}" in names.tool_call_parsers) is (format.tools is not None)
            assert format.reasoning is None or f"unbraid-{name}" in names.reasoning_parsers
    assert set(names.tool_call_parsers) <= set(sglang.FunctionCallParser.ToolCallParserEnum)
    assert set(names.reasoning_parsers) <= set(sglang.ReasoningParser.DetectorMap)
    assert sglang.FunctionCallParser.ToolCallParserEnum["step_audio_2"] is plugin.StepAudio2Detector
    assert "unbraid" not in type(sglang.FunctionCallParser([], "hermes").detector).__module__


def test_every_name_of_sglangs_works_with_the_prefix(sglang: Any, registration: Any) -> None:
    """If this fails, SGLang has a name that no format has: add it to a format, or to `PASSED_ON` with the reason."""
    calls, reasoning = sglang.FunctionCallParser.ToolCallParserEnum, sglang.ReasoningParser.DetectorMap
    own = [dict(calls), dict(reasoning)]
    plugin.install()
    for registry, theirs, parsing in zip(
        (calls, reasoning), own, (registration.ToolParsing, registration.ReasoningParsing), strict=True
    ):
        assert len(theirs) > 30
        for name in theirs:
            assert issubclass(registry[f"unbraid-{name}"], parsing) is (name not in registration.PASSED_ON)


def test_the_server_is_told_the_name_that_it_knows(
    sglang: Any, registration: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the name how prompts and ids are written. The processes that it starts know by the environment."""
    monkeypatch.delenv(registration.CHOSEN, raising=False)
    calls, reasoning = sglang.FunctionCallParser.ToolCallParserEnum, sglang.ReasoningParser.DetectorMap
    plugin.install()
    assert registration.own_name("tool_call_parser", "unbraid-kimi_k2") == "kimi_k2"
    assert registration.own_name("reasoning_parser", "unbraid-qwen3") == "qwen3"
    assert issubclass(calls["kimi_k2"], registration.ToolParsing)
    assert issubclass(reasoning["qwen3"], registration.ReasoningParsing)
    assert not issubclass(reasoning["kimi_k2"], registration.ReasoningParsing)
    assert os.environ[registration.CHOSEN] == "tool_call_parser:kimi_k2,reasoning_parser:qwen3"
    for field, name in (
        ("tool_call_parser", None),
        ("tool_call_parser", "kimi_k2"),
        ("tool_call_parser", "unbraid-qwen3"),  # SGLang has the name for reasoning only
        ("tool_call_parser", "unbraid-hunyuan"),  # SGLang's asks the tokenizer
    ):
        assert registration.own_name(field, name) == name


def test_servers_resolve_the_name(registration: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class ServerArgs(SimpleNamespace):
        def resolve_once(self) -> None:
            self.resolved = (self.tool_call_parser, self.reasoning_parser)

    monkeypatch.delenv(registration.CHOSEN, raising=False)
    plugin.install()
    module = ModuleType("server_args")
    module.ServerArgs = ServerArgs  # type: ignore[attr-defined]
    for _ in range(2):  # a second time changes nothing
        registration.tell_the_server(module)
    told = ServerArgs(tool_call_parser="unbraid-kimi_k2", reasoning_parser="qwen3")
    told.resolve_once()
    assert told.resolved == ("kimi_k2", "qwen3")


@pytest.mark.parametrize("name", [None, "hermes", "unbraid-kimi_k2", "unbraid-qwen3"])
def test_sglangs_arguments_are_resolved_twice(
    installed: Any, registration: Any, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """SGLang does so at each start, and seals the arguments the first time. `unbraid-qwen3` has no name of its own."""
    monkeypatch.delenv(registration.CHOSEN, raising=False)
    server_args = pytest.importorskip("sglang.srt.server_args", exc_type=ImportError)
    resolution = ModuleType("sglang.srt.arg_groups.pipeline")  # SGLang's own looks for a model and a GPU
    resolution.run_resolution_pipeline = lambda _: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, resolution.__name__, resolution)
    monkeypatch.setattr(server_args.ServerArgs, "resolve_once", server_args.ServerArgs.resolve_once)
    registration.tell_the_server(server_args)
    given = server_args.ServerArgs(model_path="none", device="cpu", tool_call_parser=name)
    for _ in range(2):
        given.resolve_once()
        assert given.tool_call_parser == {"unbraid-kimi_k2": "kimi_k2"}.get(name or "", name)
    with pytest.raises(AttributeError):
        given.tool_call_parser = "hermes"


def test_the_command_line_takes_the_names(installed: Any) -> None:
    server_args = pytest.importorskip("sglang.srt.server_args", exc_type=ImportError)
    assert {"step_audio_2", "unbraid-hermes"} <= set(server_args._tool_call_parser_choices())
    assert {"step-audio2", "unbraid-qwen3"} <= set(server_args._reasoning_parser_choices())


@every_format
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_streamed_as_whole(installed: Any, format: Format, size: int) -> None:
    message = a_turn(format)
    text = unbraid.render(format, message)
    name, known = f"unbraid-{format.name}", tools(installed)
    if format.reasoning is not None:
        whole = installed.ReasoningParser(name).parse_non_stream(text)
        parser = installed.ReasoningParser(name)
        steps = [parser.parse_stream_chunk(text[at : at + size]) for at in range(0, len(text), size)]
        assert tuple(map("".join, zip(*steps, parser.parse_stream_end(), strict=True))) == whole
        reasoning, text = whole
        assert reasoning == message.reasoning
    if format.tools is not None:
        calls = [(call.name, call.arguments) for call in message.tool_calls]
        content, items = installed.FunctionCallParser(known, name).parse_non_stream(text)
        assert [(item.name, item.parameters) for item in items] == calls
        assert [item.tool_index for item in items] == [0, 1]
        assert streamed(installed.FunctionCallParser(known, name), text, size) == (content, calls)
        text = content
    assert text == message.content


@pytest.mark.parametrize("name", REPLACED)
def test_in_the_place_of_sglangs_own(sglang: Any, name: str) -> None:
    theirs = sglang.FunctionCallParser.ToolCallParserEnum[name]
    assert name in plugin.install(replace=True).tool_call_parsers
    plugin.install(replace=True)  # a second time changes nothing
    parser = sglang.FunctionCallParser(tools(sglang), name)
    assert isinstance(parser.detector, theirs)
    assert type(parser.detector).__bases__[1] is theirs
    message = a_turn(unbraid.compose(tools=name))
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    assert streamed(parser, unbraid.render(name, message)) == (message.content, calls)


def test_reasoning_in_the_place_of_sglangs_own(sglang: Any) -> None:
    theirs = dict(sglang.ReasoningParser.DetectorMap)
    names = plugin.install(replace=True).reasoning_parsers
    for name in ("deepseek-r1", "qwen3", "qwen3-thinking", "mistral"):
        assert name in names
        assert isinstance(sglang.ReasoningParser(name).detector, theirs[name])
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "</think>"}}\n</tool_call>'
    assert sglang.ReasoningParser("qwen3").parse_non_stream(f"<think>\nA {call}") == ("A ", call)
    assert sglang.ReasoningParser("deepseek-r1").parse_non_stream("A\n</think>\n\nB") == ("A", "B")


def test_what_sglang_says_goes_to_its_own_class(sglang: Any, registration: Any) -> None:
    """It has defaults of its own, and options that no other has."""
    theirs = dict(sglang.ReasoningParser.DetectorMap)
    known = plugin.install(replace=True).reasoning_parsers
    names = [name for name in known if name in theirs and name != registration.TEMPLATE]  # that needs a tokenizer
    assert {"deepseek-r1", "k2_horizon", "gpt-oss", "ling3"} <= set(names)
    for name in names:
        ours, own = sglang.ReasoningParser(name).detector, theirs[name]()
        assert ours._must_answer == own._force_nonempty_content
        assert ours.reasoning_default == own.reasoning_default
        assert ours._inside or not own.force_reasoning
    # `step3` reasons whatever the guess is, as DeepSeek-R1 does.
    assert sglang.ReasoningParser("step3", force_reasoning=False).parse_non_stream("A</think>B") == ("A", "B")
    asked = sglang.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], reasoning_effort="low")
    quick = sglang.ReasoningParser("k2_horizon", request=asked, force_reasoning=True)
    assert quick.detector.think_end_token == "</ifm|think_faster>"
    assert quick.parse_non_stream("A</ifm|think_faster>B") == ("A", "B")


def test_detectors_that_ask_the_tokenizer_stay(sglang: Any) -> None:
    """What `hunyuan` reads depends on it, and of `beam` the server knows the class."""
    registries = (sglang.FunctionCallParser.ToolCallParserEnum, sglang.ReasoningParser.DetectorMap)
    kept = [{name: registry[name] for name in ("hunyuan", "beam") if name in registry} for registry in registries]
    assert all(before for before in kept)
    plugin.install(replace=True)
    for registry, before in zip(registries, kept, strict=True):
        assert {name: registry[name] for name in before} == before
        assert not any(issubclass(registry[f"unbraid-{name}"], tuple(before.values())) for name in ("beam", "hunyuan"))


def test_the_environment_asks_for_it(sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.REPLACE, "1")
    assert "hermes" in plugin.install().tool_call_parsers
    assert "hermes" not in plugin.install(replace=False).tool_call_parsers
