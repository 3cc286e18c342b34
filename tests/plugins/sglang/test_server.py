"""The plug-in in SGLang's chat server, and the command that starts it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import unbraid

from .cases import STEP_CALL, a_turn, tools
from .package import Chat, is_before_0_5_23


@pytest.mark.parametrize(
    ("tool_call_parser", "reasoning_parser", "format"),
    [("step_audio_2", "step-audio2", "step-audio-2"), ("unbraid-qwen3", "unbraid-qwen3", "qwen3")],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_through_the_server(
    installed: Any,
    monkeypatch: pytest.MonkeyPatch,
    tool_call_parser: str,
    reasoning_parser: str,
    format: str,
    size: int,
) -> None:
    chat = Chat(monkeypatch, tool_call_parser, reasoning_parser)
    message = a_turn(unbraid.find(format))
    text = unbraid.render(format, message)
    # Qwen 3 reasons by default, so SGLang takes the reasoning to be open: the tag that comes again is no harm.
    request = {"tools": [tool.model_dump() for tool in tools(installed)], "tool_choice": "auto"}
    expected = {
        "content": message.content,
        "reasoning_content": message.reasoning,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls],
        "finish_reason": "tool_calls",
    }
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert asyncio.run(chat.stream(pieces, **request)) == expected
    assert chat.whole(text, **request) == expected
    plain = {"content": "Hi <", "reasoning_content": "", "tool_calls": [], "finish_reason": "stop"}
    if format == "step-audio-2":
        assert asyncio.run(chat.stream(["Hi", " <"], **request)) == plain
        assert asyncio.run(chat.stream(["Hi", " <"])) == plain
        assert chat.whole("Hi <", **request) == plain
        cut = asyncio.run(chat.stream([STEP_CALL[:-15]], **request))
        assert cut["tool_calls"] == [{"name": "get_weather", "arguments": '{"city": "上'}]
        assert cut["finish_reason"] == ("tool_calls" if is_before_0_5_23(installed) else "stop")


# --- The command, and what is missing ------------------------------------------------------------------------------


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(("-c", code) if code else ("-m", "unbraid.plugins.sglang")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_without_sglang() -> None:
    """The plug-in itself can be imported, and says what is missing."""
    code = (
        "import sys; sys.modules['sglang'] = None\n"
        "import unbraid.plugins.sglang as plugin\n"
        "try: plugin.install()\n"
        "except plugin.SGLangMissing as error: print(isinstance(error, ImportError), error)\n"
        "try: plugin.StepAudio2Detector\n"
        "except plugin.SGLangMissing: print('no detector')\n"
        "assert not hasattr(plugin, 'nonsense')\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True unbraid's plug-in is made for sglang>=0.5.21,<0.5.24, and this SGLang")
    assert "sglang.srt.entrypoints.openai.protocol cannot be imported" in done.stdout
    assert done.stdout.endswith("no detector\n")


UNKNOWN = (
    "import logging, sys, types\n"
    "logging.basicConfig(format='%(levelname)s %(message)s')\n"
    "for name in ('sglang', 'sglang.srt'):\n"
    "    sys.modules[name] = types.ModuleType(name)\n"
    "    sys.modules[name].__path__ = []\n"
    "import unbraid.plugins.sglang as plugin\n"
    "plugin.load()\n"
    "print('goes on')\n"
)


def test_an_unknown_sglang_goes_on_with_one_line() -> None:
    """What SGLang calls by itself must not end it."""
    done = run(UNKNOWN)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("ERROR unbraid's plug-in is made for sglang>=0.5.21,<0.5.24, and this SGLang")


def test_a_server_that_cannot_be_told(installed: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Its arguments are made in another way: that is one line as well."""
    from unbraid.plugins.sglang.registration import tell_the_server

    tell_the_server(ModuleType("sglang.srt.server_args"))
    [record] = caplog.records
    assert (record.levelname, "UNBRAID_SGLANG_REPLACE=1" in record.getMessage()) == ("ERROR", True)


def test_an_sglang_that_is_too_old() -> None:
    """One that tells no detector of the end of a stream would lose what is held back."""
    code = (
        "import sys, types\n"
        "class Any(type):\n"
        "    def __getattr__(cls, name):\n"
        "        if name.startswith('__') or name == 'parse_stream_end': raise AttributeError(name)\n"
        "        return Old\n"
        "class Old(metaclass=Any): pass\n"
        "class Module(types.ModuleType):\n"
        "    __path__ = []\n"
        "    def __getattr__(self, name):\n"
        "        if name.startswith('__'): raise AttributeError(name)\n"
        "        return type(name, (Old,), {})\n"
        "names = ['entrypoints', 'entrypoints.openai', 'entrypoints.openai.protocol',\n"
        "    'environ', 'function_call.base_format_detector', 'function_call.core_types',\n"
        "    'function_call.function_call_parser', 'parser.reasoning_parser', 'function_call', 'parser']\n"
        "for name in ['sglang', 'sglang.srt', *('sglang.srt.' + name for name in names)]:\n"
        "    sys.modules[name] = Module(name)\n"
        "import unbraid.plugins.sglang as plugin\n"
        "try: plugin.install()\n"
        "except plugin.SGLangMissing as error: print(error)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "does not fit: " in done.stdout
    for module, name in (
        ("function_call.function_call_parser", "FunctionCall"),
        ("parser.reasoning_parser", "Reasoning"),
    ):
        assert f"sglang.srt.{module} has no {name}Parser.parse_stream_end" in done.stdout
    assert done.stdout.count(" has no ") == 2


def test_the_command(sglang: Any) -> None:
    if run("import sglang.srt.function_call.function_call_parser").returncode:
        pytest.skip("sglang is here without what it needs to run")
    listed = run("")
    assert listed.returncode == 0, listed.stderr
    assert "step_audio_2" in listed.stdout
    assert " hermes," not in listed.stdout
    assert " hermes," in run("", "--replace").stdout
    version = run("", "version")
    assert "sglang version: 0.5" in version.stdout, version.stderr


def test_processes_that_sglang_starts_have_the_names(sglang: Any) -> None:
    """SGLang starts its scheduler as a new process, which makes a reasoning parser of its own."""
    if run("import sglang.srt.function_call.function_call_parser").returncode:
        pytest.skip("sglang is here without what it needs to run")
    code = (
        "import multiprocessing, runpy, sys\n"
        "def main():\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    process = context.Process(target=eval, args=(\"__import__('sys').exit('step-audio2' not in __import__(\"\n"
        "        \"'sglang.srt.parser.reasoning_parser', fromlist=['_']).ReasoningParser.DetectorMap)\",))\n"
        "    process.start(); process.join(); sys.exit(process.exitcode)\n"
        "import types; cli = types.ModuleType('sglang.cli.main'); cli.main = main\n"
        "sys.modules['sglang.cli.main'] = cli\n"
        "sys.argv = ['x', 'serve']\n"
        "runpy.run_module('unbraid.plugins.sglang', run_name='__main__', alter_sys=True)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
