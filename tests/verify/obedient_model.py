"""A model that does what the probes of `unbraid verify` ask, written as Qwen3 writes, behind our server: a right
deployment in all three APIs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from unbraid.engines.replay import script

from ..support.real_tokenizers import encode
from ..support.scripted_server import Scripted

Body = Mapping[str, Any]
ARGUMENTS: Mapping[str, Any] = {
    "get_weather": {"city": "Paris"},
    "get_time": {"city": "Paris"},
    "book": {"where": "outside", "guests": ["Ann", "Bob"], "at": {"hour": 19, "minute": 30}},
}
LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"


def written(body: Body) -> str:
    """What the model writes after this request."""
    question, names = _question(body), _tools(body)
    if names and _choice(body) != "none" and not _answered(body):
        return "<think>\n\n</think>\n\n" + "\n".join(_calls(body, question, names))
    reasoning = "Both are decimals, so what stands behind the point decides, 11 of a hundred against 90 of a hundred."
    thought = reasoning * 2 if "Think first" in question else ""
    return f"<think>\n{thought}\n</think>\n\n{_answer(question, body)}"


def _answer(question: str, body: Body) -> str:
    if _answered(body):
        return "It is clear, and 21 degrees."
    if "from 1 to" in question:
        return "\n".join(map(str, range(1, 200)))
    if "JSON" in question:
        return json.dumps(ARGUMENTS["book"])
    answers = {
        "Think first": "9.9 is larger.",
        "the sea": "The sea is wide. It is deep. It is blue.",
        "days": "Monday\nTuesday\nWednesday\nThursday\nFriday\nSaturday\nSunday",
        "Japanese": "こんにちは、مرحبا 🌊🎉👋🏽",
    }
    return next((answer for words, answer in answers.items() if words in question), "Red, green and blue.")


def _calls(body: Body, question: str, names: list[str]) -> list[str]:
    choice = _choice(body)
    name = choice if choice in names else names[0]
    arguments = dict(ARGUMENTS.get(name, {}))
    if name == "write_note":
        arguments = {"text": question.split("---\n", 1)[1].removesuffix("\n---")}
    if LONG in question:
        arguments = {"city": LONG}
    cities = ("Paris", "Rome") if "same reply" in question and _parallel(body) else ("Paris",)
    written = [arguments] if len(cities) == 1 else [{**arguments, "city": city} for city in cities]
    calls = [json.dumps({"name": name, "arguments": each}, ensure_ascii=False) for each in written]
    return [f"<tool_call>\n{call}\n</tool_call>" for call in calls]


def _history(body: Body) -> list[Any]:
    return list(body.get("messages") or body.get("input") or ())


def _question(body: Body) -> str:
    texts = [each["content"] for each in _history(body) if each.get("role") == "user"]
    return next((text for text in reversed(texts) if isinstance(text, str)), "")


def _answered(body: Body) -> bool:
    last = _history(body)[-1]
    results = last.get("role") == "tool" or last.get("type") == "function_call_output"
    return results or (isinstance(last.get("content"), list) and last["content"][0].get("type") == "tool_result")


def _tools(body: Body) -> list[str]:
    return [(tool.get("function") or tool)["name"] for tool in body.get("tools") or ()]


def _choice(body: Body) -> str:
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, str):
        return choice
    return str(choice.get("name") or (choice.get("function") or {}).get("name") or choice["type"])


def _parallel(body: Body) -> bool:
    choice = body.get("tool_choice")
    no = isinstance(choice, dict) and choice.get("disable_parallel_tool_use")
    return bool(body.get("parallel_tool_calls", True)) and not no


class Obedient:
    """The server; `prepare` tells the model of a request before it comes."""

    def __init__(self) -> None:
        self.habit: Callable[[str], str] = lambda text: text
        """What the model makes of what it should write."""
        self.scripted = Scripted()
        self.scripted.server.start()

    @property
    def url(self) -> str:
        return self.scripted.server.url

    def prepare(self, body: Body) -> None:
        text = self.habit(written(body))
        for stop in body.get("stop") or body.get("stop_sequences") or ():
            head, _, rest = text.partition("</think>")
            text = f"{head}</think>{rest.partition(stop)[0]}"
        ids = encode(self.scripted.tokenizer, text)
        most = body.get("max_tokens") or body.get("max_output_tokens") or body.get("max_completion_tokens") or 512
        self.scripted.choose = lambda _: script(ids[:most], ending="length" if len(ids) > most else "stop")

    def close(self) -> None:
        self.scripted.server.stop()
