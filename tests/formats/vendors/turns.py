"""Assistants' turns that vendors' code is given to write, and the tools in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from unbraid import Message, Text, ToolCall


@dataclass(frozen=True)
class Turn:
    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Names, and arguments as JSON text."""
    reasoning: str = ""

    def message(self) -> Message:
        texts = (Text("reasoning", self.reasoning), Text("content", self.content))
        return Message((*(text for text in texts if text.text), *(ToolCall(*call) for call in self.calls)))

    def rewritten(self) -> Turn:
        """With the arguments as Python writes them."""
        return replace(self, calls=tuple((name, to_json(json.loads(arguments))) for name, arguments in self.calls))


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


PARIS = ("get_weather", '{"city": "Paris"}')
NESTED = (
    '{"b":[1, {"c" : null}], "a":{"é": "你好 🦙 \\u00e9 \\"\\\\\\n"},"n": 12345678901234567890, "x":-1.50e-3, "": true}'
)
MARKUP = (
    '{"text": "</tool_call>\\n<tool_call>\\n{\\"name\\": \\"now\\"} <think> </think> <|im_end|> </s> <s> '
    '[TOOL_CALLS][{\\"name\\": 1}] [/TOOL_CALLS] now[ARGS]{} [CALL_ID]x [THINK] [/THINK] [/INST]"}'
)
OTHER_MARKUP = (
    '{"text": "<tool_call> <function=now> {\\"name\\": \\"now\\"} <think> </think> <|im_end|> [TOOL_CALLS] [ARGS]"}'
)
LINES = "\n\n# Über 3 < 4\n\n- 你好 🦙\n- `a[0]` {b}, <b>\n\n"

TURNS = {
    "content": Turn("Hello, world."),
    "content of many lines": Turn(LINES),
    "space around the content": Turn("  Hello, world.  "),
    "a call": Turn(calls=(PARIS,)),
    "several calls": Turn(calls=(PARIS, ("now", "{}"), ("get_weather", '{"city": "Tōkyō", "days": 3}'))),
    "content and a call": Turn("Let me look. ", (PARIS,)),
    "lines of content and calls": Turn(LINES, (PARIS, PARIS)),
    "nested arguments": Turn(calls=(("get_weather", NESTED),)),
    "markup in arguments": Turn(calls=(("get_weather", MARKUP), PARIS)),
    "other markup in arguments": Turn(calls=(("get_weather", OTHER_MARKUP), PARIS)),
    "reasoning and content": Turn("Hello, world.", reasoning="They greet me.\n\nI greet them."),
    "reasoning and a call": Turn(calls=(PARIS,), reasoning="They ask for the weather."),
    "reasoning, content and calls": Turn("Let me look.", (PARIS, ("now", "{}")), "They ask for the weather."),
    "space around all": Turn(" \n\nLet me look.\n\n ", (PARIS,), " \n\nThey ask.\n\nI look.\n\n "),
}

PARAMETERS = {"city": "string", "text": "string", "days": "integer"}
PARAMETERS |= {"b": "array", "a": "object", "n": "integer", "x": "number", "": "boolean"}


def _tools(parameters: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Says the {name}.",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": kind, "description": key} for key, kind in properties.items()},
                    "required": [],
                },
            },
        }
        for name, properties in {"get_weather": parameters, "now": {}}.items()
    ]


TOOLS = _tools(PARAMETERS)
PLAIN_TOOLS = _tools({"city": "string", "text": "string", "days": "integer"})
"""For a template that cannot write the types of the others."""
USER = {"role": "user", "content": "What is the weather in Paris?"}
IDS = [f"Call0000{n}" for n in range(1, 10)]
"""Mistral's ids are 9 letters or digits."""


@dataclass(frozen=True)
class Loss:
    """What a vendor's code itself loses of a turn."""

    what: str
    left: Callable[[Turn], Turn]
    """What is left of a turn."""


def left_of(turn: Turn, losses: tuple[Loss, ...]) -> Turn:
    for loss in losses:
        turn = loss.left(turn)
    return turn
