"""The recorded cases: what a model wrote, and what three engines made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

import unbraid
from unbraid import Message, Text, ToolCall
from unbraid.parsing import UnknownTools

from ...support.places import SHARED

FOLDER = SHARED / "conformance"
ENGINES = ("dynamo", "vllm", "sglang")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is there: it takes a tenth of the time."""


FAMILIES = {
    "deepseek_v3": "deepseek-v3",
    "deepseek_v3_1": "deepseek-v3.1",
    "deepseek_v3_2": "deepseek-v3.2",
    "deepseek_v4": "deepseek-v4",
    "gemma4": "gemma-4",
    "glm47": "glm-4.7",
    "harmony": "harmony",
    "hermes": "hermes",
    "jamba": "jamba",
    "kimi_k2": "kimi-k2",
    "llama3_json": "llama-3",
    "minimax_m2": "minimax-m2",
    "mistral": "mistral",
    "nemotron_deci": "nemotron-deci",
    "nemotron_nano": "nemotron-nano",
    "phi4": "phi4",
    "pythonic": "pythonic",
    "qwen25": "qwen2.5",
    "qwen3_coder": "qwen3-coder",
}
"""Folder to format."""
NOT_JSON = {"deepseek_v3_2", "deepseek_v4", "gemma4", "glm47", "minimax_m2", "nemotron_nano", "pythonic", "qwen3_coder"}
"""Families whose arguments are not JSON, and become it."""


@dataclass(frozen=True)
class Said:
    """An answer, as the engines give it: the calls, and the text before them."""

    calls: tuple[tuple[str, str], ...]
    """Names, and arguments as JSON with sorted keys."""
    text: str

    def is_said_by(self, message: Message) -> bool:
        """Whether our message says the same. The engines answer without streaming: so a call that never became complete
        counts as text. Most drop the text that follows the first call, and some do not."""
        settled = message.settled()
        return self.has_calls_of(message) and self.text in (before_calls(settled), settled.content)

    def has_calls_of(self, message: Message) -> bool:
        """Whether at least the calls are those of our message."""
        settled = message.settled()
        return self.calls == tuple((call.name, _canonical(json.loads(call.arguments))) for call in settled.tool_calls)


@dataclass(frozen=True)
class Case:
    description: str
    text: str
    tools: list[Mapping[str, Any]]
    engines: Mapping[str, Said | None]
    """Every engine that has a parser for the family; None where it raised an error."""
    ended: bool = True
    """Whether the model ended its turn. The cases of number 5 break off."""

    @property
    def agreed(self) -> Said | None:
        """What all three engines say, where they say the same."""
        first, *others = self.engines.values()
        return first if len(others) == 2 and all(other == first for other in others) else None

    def with_us(self, message: Message) -> tuple[str, ...]:
        """The engines that say the same as our message."""
        return tuple(engine for engine, said in self.engines.items() if said is not None and said.is_said_by(message))


def cases(family: str) -> dict[str, Case]:
    """The family's cases that have a text, by their short ids (`TOOLCALLING.batch.2.a` is `2.a`)."""
    found: dict[str, Case] = {}
    for path in sorted((FOLDER / family).glob("*.yaml")):
        for name, data in yaml.load(path.read_bytes(), Loader=LOADER)["cases"].items():
            if "model_text" not in data:
                continue  # says itself why it does not apply to this family
            short = name.removeprefix("TOOLCALLING.batch.")
            assert short not in found, f"{family} {name} is there twice"
            answers = {engine: data["expected"][engine] for engine in ENGINES if engine in data["expected"]}
            engines = {engine: _said(answer) for engine, answer in answers.items() if "unavailable" not in answer}
            found[short] = Case(
                data["description"], data["model_text"], data["tools"], engines, not short.startswith("5.")
            )
    return dict(sorted(found.items(), key=lambda item: [part.rjust(3) for part in item[0].split(".")]))


def _said(answer: Mapping[str, Any]) -> Said | None:
    if "error" in answer:
        return None
    calls = tuple((call["name"], _canonical(call["arguments"])) for call in answer["calls"])
    return Said(calls, answer.get("normal_text") or "")


def read(family: str, case: Case, unknown: UnknownTools = "text") -> Message:
    """Our message. The engines' parsers of tool calls are not told the prompt, and know no reasoning that it opens."""
    parser = unbraid.parser(FAMILIES[family], tools=case.tools, unknown_tools=unknown, prompt="")
    parser.feed(case.text)
    parser.finish(end_of_turn=case.ended)
    return parser.message


def before_calls(message: Message) -> str:
    """The content up to the first call."""
    text = ""
    for part in message.parts:
        if isinstance(part, ToolCall):
            break
        if isinstance(part, Text) and part.strand == "content":
            text += part.text
    return text


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)
