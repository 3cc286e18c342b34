"""The model that the clients talk to: scripted, in Qwen3's tokens and with Qwen3's template.

What it writes follows from its prompt, so it does not matter which client asks first, or how often.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unbraid import Message, ToolCall, render
from unbraid.core.message import Part, Text
from unbraid.engines import Generation
from unbraid.engines.replay import Script, script
from unbraid.server.storage.store import Store

from ...support.real_tokenizers import encode
from ...support.scripted_server import Scripted
from .contract import ANSWER, CITY, DESCRIBE, DESCRIPTION, QUESTION, REPORT, RESULT, THOUGHT, WONDER


@contextmanager
def weather_model(folder: Path) -> Iterator[Scripted]:
    scripted = Scripted()
    scripted.engine.context = 32768  # frameworks ask for room for long answers
    scripted.service.store = Store(folder / "responses.sqlite", 30)
    scripted.choose = lambda request: _output(scripted, request)
    scripted.server.start()
    try:
        yield scripted
    finally:
        scripted.server.stop()


def prompt_of(scripted: Scripted, request: Generation) -> str:
    assert not isinstance(request.prompt, str)
    return scripted.tokenizer.decode(list(request.prompt), skip_special_tokens=False)


def _output(scripted: Scripted, request: Generation) -> Script:
    text = render("qwen3", Message(_parts(prompt_of(scripted, request))))
    return script(encode(scripted.tokenizer, f"{text}<|im_end|>"), chunks=(1, 3))


def _parts(prompt: str) -> tuple[Part, ...]:
    if DESCRIBE in prompt:
        value = json.dumps(DESCRIPTION)
        tool = re.search(r'<tools>\n.*?"name": "(\w+)"', prompt)
        return (ToolCall(tool[1], value),) if tool else (Text("content", value),)
    if RESULT in prompt:
        return (Text("content", REPORT),)
    if QUESTION in prompt:
        return Text("reasoning", WONDER), ToolCall("get_weather", json.dumps({"city": CITY}))
    return Text("reasoning", THOUGHT), Text("content", ANSWER)
