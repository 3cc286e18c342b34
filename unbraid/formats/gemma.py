"""Google's Gemma: calls with bare keys, and strings between quotes that are tokens."""

from __future__ import annotations

from ..core.grammar import Between, Call, Calls, Format, Maybe, Name
from ..core.notations import BareArguments


def _calls(open: str, quote: str, close: str) -> Calls:
    # Models forget the word.
    return Calls(open, Call((Maybe("call", due=True), ":", Name(), BareArguments(quote))), close)


GEMMA_4 = Format(
    "gemma-4",
    reasoning=Between("<|channel>thought\n", "\n<channel|>", label="thought\n"),
    tools=_calls("<|tool_call>", '<|"|>', "<tool_call|>"),
    ends=("<turn|>", "<|tool_response>", "<eos>"),
)
FUNCTION_GEMMA = Format(
    "functiongemma",
    tools=_calls("<start_function_call>", "<escape>", "<end_function_call>"),
    ends=("<end_of_turn>", "<start_function_response>", "<eos>"),
)
