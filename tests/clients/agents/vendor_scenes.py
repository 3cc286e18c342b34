"""Scenes with vendors' templates: a model that writes raw text, five turns long, and turns that are damaged.

The server has the vendor's template and finds the format by it. What the model writes in each turn is what that format
would have it write: two calls at once, a file of 500 lines with markup of every family in it, an edit, a command, and
an answer. A damaged scene has one more turn, after the first: a call that is cut off, malformed, of an unknown tool, or
with a wrong argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import unbraid
from unbraid import Format, Message, ToolCall, render
from unbraid.core.message import Part, Text
from unbraid.engines import Generation
from unbraid.engines.base import FinishReason
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.templates import ChatTemplate

from ...support.running_server import service_of, serving
from ...templates.prompt_models import template_source
from .coding_agents import Agent
from .scene import FIRST_WORDS, LAST_WORDS, MENDED, Call, repository

TEMPLATES = {
    "gpt-oss": "openai-gpt-oss-120b",
    "GLM-4.7": "GLM-4.7-Flash",
    "Kimi K2": "moonshotai-Kimi-K2",
    "Kimi K3": "Kimi-K3",
    "DeepSeek V3.1": "deepseek-ai-DeepSeek-V3.1",
    "DeepSeek V3.2": "deepseek-ai-DeepSeek-V3.2",
    "Qwen3-Coder": "Qwen3-Coder",
    "MiniMax M2": "MiniMax-M2",
    "Mistral Small 3.2": "Mistral-Small-3.2-24B-Instruct-2506",
    "Llama 3.3": "meta-llama-Llama-3.3-70B-Instruct",
    "Gemma 4": "google-gemma-4-31B-it",
}
DAMAGES = ("none", "cut", "malformed", "unknown tool", "wrong argument")
_MARKUP = "<tool_call> </think> <|im_end|> [TOOL_CALLS] <|channel|>final <invoke> {'a': \"b\"} \\n é — end"
PAGES = "".join(f"{line:03} {_MARKUP if line % 50 == 0 else 'a line like any other'}\n" for line in range(500))


class Upstream:
    """The model: plays its turns one after the other, as a model of the format writes them."""

    def __init__(self, format: Format, agent: Agent, place: Path, damage: str) -> None:
        self.format = format
        self._turns = self._played(agent, place, damage)
        self.prompts: list[str] = []

    def output(self, request: Generation) -> Script:
        self.prompts.append(str(request.prompt))
        text, ending = next(self._turns, None) or (self._written(Text("content", LAST_WORDS)), "stop")
        opener = "" if self.format.reasoning is None else self.format.reasoning.open.strip()
        if self.format.reasoning is not None and opener and self.prompts[-1].rstrip().endswith(opener):
            text = f"Hm.{self.format.reasoning.close}{text}"
        return script(text, chunks=(1, 40), ending=ending)

    def _played(self, agent: Agent, place: Path, damage: str) -> Iterator[tuple[str, FinishReason]]:
        work = agent.work(place)
        yield self._written(Text("content", FIRST_WORDS), _call(work.read), _call(work.look)), "stop"
        if damage != "none":
            yield self._damaged(damage, work.read)
        yield self._written(_call(agent.writing(place / "pages.txt", PAGES))), "stop"
        yield self._written(_call(work.edit)), "stop"
        yield self._written(_call(work.run)), "stop"

    def _damaged(self, damage: str, call: Call) -> tuple[str, FinishReason]:
        name, arguments = call
        if damage == "unknown tool":
            return self._written(_call(("frobnicate", {"x": "1"}))), "stop"
        if damage == "wrong argument":
            return self._written(_call((name, {"not_an_argument": "1"}))), "stop"
        text = self._written(_call((name, {key: f"{value}qz cut" for key, value in arguments.items()})))
        at = text.rindex("qz cut")
        return (text[:at], "length") if damage == "cut" else (text[:at] + '" oops ' + text[at:], "stop")

    def _written(self, *parts: Part) -> str:
        return render(self.format, Message(parts))


def _call(call: Call) -> ToolCall:
    name, arguments = call
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def played(agent: Agent, template: str, damage: str) -> tuple[str, str]:
    """What becomes of a scene: `edits`, `recovers`, `says so` (it fails, and says it) or `wrong`; and all that was
    said."""
    source = ChatTemplate(template_source(TEMPLATES[template]), bos_token="<s>", eos_token="</s>")
    format = unbraid.detect(source.source).format
    assert format is not None
    with TemporaryDirectory() as folder:
        place = repository(Path(folder) / "repository")
        upstream = Upstream(format, agent, place, damage)
        service = service_of(ReplayEngine(upstream.output, model=agent.model), format, template=source)
        with serving(service) as server:
            done = agent.run(server.url, place, Path(folder) / "home")
        texts = {name: (place / name).read_text("utf-8") if (place / name).exists() else "" for name in _RIGHT}
    said = f"exit {done.returncode}, {len(upstream.prompts)} requests\n{done.stdout}\n{done.stderr}"
    if texts == _RIGHT and done.returncode == 0 and LAST_WORDS in done.stdout:
        return ("edits" if damage == "none" else "recovers"), said
    # Codex tells every time that it does not know the model.
    errors = [line for line in said.splitlines() if "error" in line.lower() and "Model metadata" not in line]
    fails = damage != "none" and (done.returncode != 0 or bool(errors))
    return ("says so" if fails else "wrong"), said


_RIGHT = {"add.py": MENDED, "pages.txt": PAGES, "sum.txt": "5\n"}
