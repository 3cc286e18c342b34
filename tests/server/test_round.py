"""The whole round: whatever the server replies can be sent back, and the next prompt has every word of it.

A model of each vendor's template is played: what it writes, the server parses; a client of each dialect takes the
reply, streamed or whole, adds results, and sends all of it back. Every word that the client sends (instructions, calls,
arguments, results, answers) must be in the next prompt, once and in order. What may differ: reasoning, which templates
drop; a first system message, which a template may put elsewhere; and results of calls that were made at once, which may
stand each after its call.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from unbraid import Message, ToolCall, UnbraidError, find, render
from unbraid.core.message import Part, Text
from unbraid.engines import Generation
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.templates import ChatTemplate

from ..formats.vendors.templates import TEMPLATES
from ..support import patient_http
from ..support.anthropic_events import folded_message, read_events
from ..support.examples import LONG
from ..support.running_server import RunningServer, folded, service_of
from ..support.said_words import Said, lost
from ..templates.prompt_models import ALL_TEMPLATES, template_source

FORMATS = {template.file: template.formats[0] for template in TEMPLATES.values()} | {
    "google-gemma-4-31B-it": "gemma-4",
    "MiniMax-M3": "minimax-m3",
}
TOOL = {"type": "object", "properties": {"x": {"type": "string"}}}
DAMAGES = ("none", "none", "none", "cut", "broken", "unknown", "after")
HOSTILE = (
    "{}",
    "{} é 你好 🙂",
    '"{}" and {{\'a\': \\"b\\"}}',
    "one {}\n\n- two\n  three",
    "<tool_call> {} </tool_call>",
    "</think> {} <think>",
    "<|im_end|> {} <|im_start|>user",
    "[TOOL_CALLS] {} <invoke>",
    "{{% raw %}} {} {{{{ bos_token }}}}",
)
"""Words among what templates and formats look for."""
FIRST = ("", "system", "system developer", "developer", "system system developer developer")
LATER = ("user", "user", "user user", "system user", "developer user", "user system system user", "assistant user")


class Words:
    """Words that occur nowhere else."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return f"wq{self._count}qw"

    def hostile(self) -> str:
        return self.chance.choice(HOSTILE).format(self())

    def often(self, share: float) -> bool:
        return self.chance.random() < share


class Client(ABC):
    """A client of one dialect. It keeps the conversation as that dialect has it."""

    route: str

    def __init__(self, url: str, streams: bool) -> None:
        self.url, self.streams = url, streams
        self.history: list[dict[str, Any]] = []
        self.tools = ["alpha", "beta"]
        self.more: dict[str, Any] = {}
        """Further fields of the next requests."""

    def post(self, body: dict[str, Any]) -> str:
        response = patient_http.post(f"{self.url}{self.route}", json={**body, **self.more, "stream": self.streams})
        assert response.status_code == 200, f"{response.text}\n{json.dumps(body, indent=1)}"
        return response.text

    @abstractmethod
    def say(self, role: str, text: str, parts: bool = False) -> None:
        """Add a message; as two parts, if so wanted."""

    @abstractmethod
    def ask(self) -> list[str]:
        """Send the conversation, and keep the reply. Returns the ids of the calls in it."""

    @abstractmethod
    def result(self, call: str, text: str) -> None: ...

    @abstractmethod
    def sent(self) -> list[Said]:
        """What the conversation says, without reasoning."""


def in_parts(kind: str, text: str) -> list[dict[str, Any]]:
    """A text as a content of two parts."""
    half = text.index(" ")
    return [{"type": kind, "text": text[:half]}, {"type": kind, "text": text[half:]}]


class ChatClient(Client):
    route = "/v1/chat/completions"

    def say(self, role: str, text: str, parts: bool = False) -> None:
        self.history.append({"role": role, "content": in_parts("text", text) if parts else text})

    def ask(self) -> list[str]:
        tools = [{"type": "function", "function": {"name": name, "parameters": TOOL}} for name in self.tools]
        text = self.post({"messages": self.history, **({"tools": tools} if tools else {})})
        if self.streams:
            *events, _, _ = text.split("\n\n")
            message = folded([json.loads(event.removeprefix("data: ")) for event in events])[0]
        else:
            message = json.loads(text)["choices"][0]["message"]
        kept = {key: message[key] for key in ("content", "reasoning_content", "tool_calls") if message.get(key)}
        self.history.append({"role": "assistant", "content": None, **kept})
        return [call["id"] for call in kept.get("tool_calls", ())]

    def result(self, call: str, text: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": call, "content": text})

    def sent(self) -> list[Said]:
        return [said for message in self.history for said in self._said(message)]

    def _said(self, message: dict[str, Any]) -> Iterator[Said]:
        role = message["role"]
        content = message["content"] or ""
        text = content if isinstance(content, str) else json.dumps(content)
        yield Said("result" if role == "tool" else role, text, message.get("tool_call_id", ""))
        for call in message.get("tool_calls", ()):
            yield Said("call", call["function"]["arguments"], call["id"])


class MessagesClient(Client):
    route = "/v1/messages"

    def say(self, role: str, text: str, parts: bool = False) -> None:
        role = role.replace("developer", "system")
        self.history.append({"role": role, "content": in_parts("text", text) if parts else text})

    def ask(self) -> list[str]:
        tools = [{"name": name, "input_schema": TOOL} for name in self.tools]
        begin = next(at for at, message in enumerate(self.history) if message["role"] != "system")
        system = [{"type": "text", "text": message["content"]} for message in self.history[:begin]]
        text = self.post({"system": system, "messages": self.history[begin:], "tools": tools, "max_tokens": 99})
        message = folded_message(read_events(text)) if self.streams else json.loads(text)
        for block in message["content"]:
            if "partial_json" in block:  # as SDKs do that read what they can
                block["input"] = {"partial": block.pop("partial_json")}
        self.history.append({"role": "assistant", "content": message["content"]})
        return [block["id"] for block in message["content"] if block["type"] == "tool_use"]

    def result(self, call: str, text: str) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        self.history.append({"role": "user", "content": [block]})

    def sent(self) -> list[Said]:
        return [said for message in self.history for said in self._said(message)]

    def _said(self, message: dict[str, Any]) -> Iterator[Said]:
        role, content = message["role"], message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text":
                yield Said(role, block["text"])
            elif block["type"] == "tool_use":
                yield Said("call", json.dumps(block["input"]), block["id"])
            elif block["type"] == "tool_result":
                yield Said("result", block["content"], block["tool_use_id"])


class ResponsesClient(Client):
    route = "/v1/responses"

    def say(self, role: str, text: str, parts: bool = False) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        self.history.append({"type": "message", "role": role, "content": in_parts(kind, text) if parts else text})

    def ask(self) -> list[str]:
        tools = [{"type": "function", "name": name, "parameters": TOOL} for name in self.tools]
        text = self.post({"input": self.history, "tools": tools, "store": False})
        output = self._streamed(text) if self.streams else json.loads(text)["output"]
        self.history += output
        calls = [item for item in output if item["type"] == "function_call" and item["status"] == "completed"]
        return [item["call_id"] for item in calls]

    def _streamed(self, text: str) -> list[dict[str, Any]]:
        """The items of the stream. The final response has those that were announced, and no others."""
        *blocks, _, _ = text.split("\n\n")
        events = [json.loads(block.split("data: ", 1)[1]) for block in blocks]
        output: list[dict[str, Any]] = events[-1]["response"]["output"]
        added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
        assert [item["id"] for item in output] == added
        done = {event["item"]["id"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
        assert all(done[item["id"]] == item for item in output if item["status"] == "completed")
        assert all(item["status"] == "incomplete" for item in output if item["id"] not in done)
        return output

    def result(self, call: str, text: str) -> None:
        self.history.append({"type": "function_call_output", "call_id": call, "output": text})

    def sent(self) -> list[Said]:
        return [self._said(item) for item in self.history if item["type"] != "reasoning"]

    def _said(self, item: dict[str, Any]) -> Said:
        if item["type"] == "function_call":
            return Said("call", item["arguments"], item["call_id"])
        if item["type"] == "function_call_output":
            return Said("result", item["output"], item["call_id"])
        return Said(item["role"], json.dumps(item["content"]))


CLIENTS: tuple[type[Client], ...] = (ChatClient, MessagesClient, ResponsesClient)


class Model:
    """Writes what a model of the format writes, with words of its own."""

    def __init__(self, format: str, words: Words) -> None:
        self.format, self.words = find(format), words
        self.damage = "none"

    def output(self, request: Generation) -> Script:
        words, format = self.words, self.format
        assert isinstance(request.prompt, str)
        parts: list[Part] = []
        opener = "" if format.reasoning is None else format.reasoning.open.strip()
        thinks = bool(opener) and request.prompt.rstrip().endswith(opener)
        if format.reasoning is not None and (thinks or words.often(0.3)):
            parts.append(Text("reasoning", f"Hm {words()}."))
        if words.often(0.6):
            parts.append(Text("content", f"I say {words()}."))
        if words.often(0.75) or self.damage in ("broken", "cut", "unknown"):
            names = ["omega" if self.damage == "unknown" else words.chance.choice(["alpha", "beta"])]
            names += ["alpha"] * words.chance.choice([0, 0, 1, 2])
            parts += [ToolCall(name, json.dumps({"x": f"some {words.hostile()} and {words()}"})) for name in names]
            if self.damage == "after":
                parts.append(Text("content", f"Said after {words()}."))
        elif len(parts) < 2:
            parts.append(Text("content", f"Done {words()}."))
        text = self._written(parts)
        if thinks and format.reasoning is not None:
            text = text.removeprefix(format.reasoning.open)
        ending: Any = "stop"
        if self.damage == "cut":
            text, ending = text[: text.rfind(" and ") + 3], "length"
        elif self.damage == "broken":
            text = text.replace(" and ", '" and "', 1)
        return script(text, chunks=7, ending=ending)

    def _written(self, parts: Sequence[Part]) -> str:
        try:
            return render(self.format, Message(tuple(parts)))
        except UnbraidError:  # the format has no calls, or no place for text beside them
            return f"Just {self.words()}."


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    running = RunningServer(service_of(ReplayEngine([]), "hermes"))
    running.start()
    yield running
    running.stop()


class Played:
    """A server's model with a vendor's template, and what it is to write."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self.name, self.format = name, FORMATS.get(name, "hermes")
        self.engine = ReplayEngine(lambda request: self.model.output(request))
        template = ChatTemplate(template_source(name), bos_token="<s>", eos_token="</s>", name=name)
        server.service.models = service_of(self.engine, self.format, template=template).models

    def play(self, client: Client, seed: int) -> list[str]:
        """Play a conversation. Returns what is wrong with its prompts."""
        words = Words(seed)
        self.model = model = Model(self.format, words)
        wrong: list[str] = []
        for role in words.chance.choice(FIRST).split():
            client.say(role, f"Do {words.hostile()}.")
        client.say("user", f"Please {words.hostile()}.")
        for turn in range(4):
            model.damage = words.chance.choice(DAMAGES)
            before = client.sent()
            calls = client.ask()
            prompt = str(self.engine.requests[-1].prompt)
            wrong += [f"{self.name}, seed {seed}, turn {turn}: {each}\n{prompt}" for each in lost(before, prompt)]
            for call in calls:
                client.result(call, words.chance.choice([f"It is {words.hostile()}.", "", f"[{words()}]"]))
            if not calls or words.often(0.2):
                for role in words.chance.choice(LATER).split():
                    client.say(role, f"Now {words.hostile()}.", parts=words.often(0.2))
            if words.often(0.1):
                client.tools = words.chance.choice([["beta"], []])
        return wrong


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_every_word_comes_back(server: RunningServer, name: str) -> None:
    played = Played(server, name)
    wrong: list[str] = []
    for at, (kind, streams) in enumerate((kind, streams) for kind in CLIENTS for streams in (True, False)):
        for seed in range(20 if LONG else 1):
            wrong += played.play(kind(server.url, streams), 10_000 * at + 100 * ALL_TEMPLATES.index(name) + seed)
    assert not wrong, f"{len(wrong)}: {wrong[0]}"
