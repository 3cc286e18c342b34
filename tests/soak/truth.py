"""The truth: what each conversation is answered. It follows from its number alone, so anybody can check it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from random import Random

from unbraid import find

from ..support.byte_vocabulary import ByteVocabulary

FORMAT = replace(find("qwen3"), ends=("<end>",))
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["word", "count"],
            "additionalProperties": False,
        },
    },
}
_WORDS = ("tea", "Málaga", "🦜🦧", "<tool", "</th", "{", "中文", "\\n", '"q"', "and", "more")


class Bytes(ByteVocabulary):
    """Every byte is a token, in both directions."""

    def encode(self, text: str, special: bool = False) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return b"".join(self.token_bytes(token) or b"" for token in ids).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Truth:
    """One answer."""

    reasoning: str
    content: str
    arguments: str | None

    @property
    def text(self) -> str:
        """As the model writes it."""
        call = "" if self.arguments is None else _call(self.arguments)
        return f"<think>\n{self.reasoning}\n</think>\n\n{self.content}{call}"


def truth(number: int) -> Truth:
    chance = Random(number)

    def words(least: int, most: int) -> str:
        return " ".join(chance.choice(_WORDS) for _ in range(chance.randint(least, most)))

    arguments = None
    if number % 2:
        value = {"word": words(1, 8), "count": chance.randrange(-9, 10**6)}
        arguments = json.dumps(value, ensure_ascii=False)
    return Truth(f"{words(2, 12)} so", f"{words(4, 30)} done", arguments)


def question(number: int) -> str:
    """What the client asks."""
    return f"conversation {number}."


def asked_in(prompt: bytes) -> int:
    """The number of the conversation that a prompt is of."""
    return int(re.findall(rb"conversation (\d+)\.", prompt)[-1])


def _call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "look_up", "arguments": {arguments}}}\n</tool_call>'
