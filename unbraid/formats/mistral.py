"""Mistral: before tokenizer v11 a JSON list of calls, from then on the name and the arguments of each call."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Between, Call, CallId, CallIds, CallList, Calls, Either, Format, Maybe, Name
from ..core.notations import Arguments, JsonCall

_LIST = CallList(Call((JsonCall(by_schema=True),)), open="[", separator=", ", close="]")
_NAMED = Call((Name(), Maybe("[CALL_ID]", (CallId(),), written=False), Maybe("[ARGS]"), Arguments(by_schema=True)))
_NAMED_WITH_ID = Call((Name(), Maybe("[CALL_ID]", (CallId(),)), Maybe("[ARGS]"), Arguments(by_schema=True)))


def _calls(body: Call | CallList | Either) -> Calls:
    # Some engines, and fine-tunes of the oldest models, close the calls; the vendor's templates do not.
    return Calls("[TOOL_CALLS]", body, close=" [/TOOL_CALLS]", close_written=False)


_BASE = Format(
    "mistral",
    # The first Magistral reasons in tags.
    reasoning=Between("[THINK]", "[/THINK]", also=(("<think>\n", "\n</think>\n"),)),
    ends=("</s>",),
    call_ids=CallIds(prefix="", length=9),
    reasoning_again=True,  # text and thoughts are chunks, in any order
)

MISTRAL_V3 = replace(_BASE, name="mistral-v3", tools=_calls(_LIST))
MISTRAL_V11 = replace(_BASE, name="mistral-v11", tools=_calls(_NAMED_WITH_ID))
MISTRAL_V13 = replace(_BASE, name="mistral-v13", tools=_calls(_NAMED))
# Without a tokenizer that says its version, the text does: only a list begins with a bracket.
MISTRAL = replace(
    _BASE,
    tools=_calls(Either("[", first=_LIST, second=_NAMED)),
    versions=((0, MISTRAL_V3), (11, MISTRAL_V11), (13, MISTRAL_V13)),
)
