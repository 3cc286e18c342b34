"""The recorded cases: what a model wrote, and what three engines made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from unbraid import Message, Text, ToolCall

from .shared_data import SHARED

FOLDER = SHARED / "conformance"
FAMILIES = {"hermes": "hermes", "qwen25": "qwen2.5", "mistral": "mistral", "qwen3_coder": "qwen3-coder"}
"""Folder to format."""


@dataclass(frozen=True)
class Said:
    """An answer, as the engines give it: the calls, and the text before them."""

    calls: tuple[tuple[str, str], ...]
    """Names, and arguments as JSON with sorted keys."""
    text: str


@dataclass(frozen=True)
class Case:
    description: str
    text: str
    tools: list[Mapping[str, Any]]
    engines: Mapping[str, Said | None]
    """Every engine that has a parser for the family; None where it raised an error."""

    @property
    def agreed(self) -> Said | None:
        """What all three engines say, where they say the same."""
        said = self.unanimous
        return said if len(self.engines) == 3 else None

    @property
    def unanimous(self) -> Said | None:
        """What the engines say that have a parser, where they say the same."""
        first, *others = self.engines.values()
        return first if all(other == first for other in others) else None


def cases(family: str) -> dict[str, Case]:
    """The family's cases that have a text, by their short ids (`TOOLCALLING.batch.2.a` is `2.a`)."""
    found: dict[str, Case] = {}
    for path in sorted((FOLDER / family).glob("*.yaml")):
        for name, data in yaml.safe_load(path.read_text(encoding="utf-8"))["cases"].items():
            if "model_text" not in data:
                continue  # says itself why it does not apply to this family
            short = name.removeprefix("TOOLCALLING.batch.")
            assert short not in found, f"{family} {name} is there twice"
            engines = {
                engine: _said(answer) for engine, answer in data["expected"].items() if "unavailable" not in answer
            }
            found[short] = Case(data["description"], data["model_text"], data["tools"], engines)
    return dict(sorted(found.items(), key=lambda item: [part.rjust(3) for part in item[0].split(".")]))


def _said(answer: Mapping[str, Any]) -> Said | None:
    if "error" in answer:
        return None
    calls = tuple((call["name"], _canonical(call["arguments"])) for call in answer["calls"])
    return Said(calls, answer.get("normal_text", ""))


def said(message: Message) -> Said:
    """Our answer, as the engines would give it."""
    settled = message.settled()
    calls = tuple((call.name, _canonical(json.loads(call.arguments))) for call in settled.tool_calls)
    return Said(calls, before_calls(settled))


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
