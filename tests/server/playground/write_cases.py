"""Builds what Compare shows besides the scoreboard: what the engines and unbraid make of the recorded cases.

The cases are those that NVIDIA's Dynamo project recorded (Apache-2.0); see docs/conformance.md. They are not part of
this repository, and neither is this: where the cases are, it is put beside the page.

python -m tests.server.playground.write_cases
"""

from __future__ import annotations

import json
import os
from typing import Any

from unbraid import Message

from ...formats.conformance.answers import EMITTED
from ...formats.conformance.cases import ENGINES, FAMILIES, Case, Said, before_calls, cases, read
from ...support.places import ROOT

DOCUMENT = ROOT / "unbraid" / "server" / "playground" / "page" / "recorded_cases.json"


def document() -> str:
    tools: list[Any] = []
    families = [
        {"name": family, "format": format, "cases": [_case(family, name, case, tools) for name, case in found.items()]}
        for family, format in FAMILIES.items()
        if (found := cases(family))
    ]
    source = "Texts and the engines' answers: NVIDIA Dynamo, Apache-2.0."
    answers = {"source": source, "engines": ENGINES, "tools": tools, "families": families}
    return json.dumps(answers, ensure_ascii=False, separators=(",", ":")) + "\n"


def _case(family: str, name: str, case: Case, tools: list[Any]) -> dict[str, Any]:
    if case.tools not in tools:
        tools.append(case.tools)
    message = read(family, case, "emit" if (family, name) in EMITTED else "text")
    return {
        "id": name,
        "title": case.description,
        "text": case.text,
        "tools": tools.index(case.tools),
        "emit": (family, name) in EMITTED,
        "engines": {engine: None if said is None else _said(said) for engine, said in case.engines.items()},
        "ours": _ours(message),
        "agree": case.with_us(message),
    }


def _said(said: Said) -> dict[str, Any]:
    return {"calls": [[name, arguments, True] for name, arguments in said.calls], "text": said.text}


def _ours(message: Message) -> dict[str, Any]:
    calls = [[call.name, call.arguments, call.complete] for call in message.tool_calls]
    after = message.content.removeprefix(before_calls(message))
    return {"calls": calls, "text": before_calls(message), "after": after, "reasoning": message.reasoning}


def write() -> None:
    """Build it. Whoever reads it meanwhile sees the old one, or the new one."""
    new = DOCUMENT.with_name(f".{os.getpid()}.json")
    new.write_text(document(), encoding="utf-8")
    new.replace(DOCUMENT)


if __name__ == "__main__":
    write()
