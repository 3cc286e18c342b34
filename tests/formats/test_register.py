"""`unbraid.register` refuses a format whose parser, renderer and constraint do not agree, and shows the text."""

from __future__ import annotations

from dataclasses import replace

import pytest

import unbraid
from unbraid import Format, format_checks
from unbraid.core.grammar import Between, Call, Calls, Headers, Name
from unbraid.core.notations import Arguments
from unbraid.formats.headed import FUNCTIONARY_32, HARMONY, INKLING, MUSE

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.mark.parametrize("format", unbraid.all_formats(), ids=[format.name for format in unbraid.all_formats()])
def test_every_format_of_ours_passes(format: Format) -> None:
    format_checks.check(format)


def headers(format: Format, **changed: object) -> Format:
    assert format.headers is not None
    return replace(format, name="mine", headers=replace(format.headers, **changed))  # type: ignore[arg-type]


CALL = Call((Name(), " ", Arguments()))
DISAGREE = {
    "the pattern of calls does not recognise the header that is written": headers(
        HARMONY, calls=r"recipient=(?P<name>\w+)"
    ),
    "the pattern of calls takes the reasoning": headers(MUSE, calls=r"to=(?!user\b)[^\s<]"),
    "the pattern of reasoning takes the answer": headers(HARMONY, reasoning=r"<\|channel\|>"),
    "a name that the pattern does not admit": headers(FUNCTIONARY_32, calls=r">>>(?P<name>[a-z]+)\n$"),
    "an end that the headers do not know": headers(INKLING, ends=("<|content_model_end_sampling|>",)),
    "content that begins as a call does": Format("mine", tools=Calls("It rains", CALL, "</call>")),
    "reasoning that content closes": Format("mine", reasoning=Between("<r>", "Where")),
}


@pytest.mark.parametrize("problem", DISAGREE)
def test_a_format_whose_parts_disagree(problem: str) -> None:
    with pytest.raises(unbraid.InvalidFormat) as refused:
        unbraid.register(DISAGREE[problem])
    assert "format 'mine'" in str(refused.value)
    with pytest.raises(unbraid.UnknownFormat):
        unbraid.find("mine")


def test_the_error_shows_the_text_and_how_it_was_read() -> None:
    with pytest.raises(unbraid.InvalidFormat) as refused:
        unbraid.register(headers(HARMONY, calls=r"recipient=(?P<name>\w+)"))
    message = str(refused.value)
    assert "to=functions.get_weather" in message
    assert "it is read as" in message


def test_headers_without_calls_in_messages_of_their_own() -> None:
    """The headers tell reasoning from content; calls are found by their markers."""
    format = Format(
        "mixed",
        reasoning=Between("<|m|>think<|c|>", "<|e|>"),
        answer=Between("<|m|>say<|c|>", "<|e|>"),
        tools=Calls("<call>", CALL, "</call>"),
        headers=Headers(
            opens=("<|m|>",), closes=("<|c|>",), ends=("<|e|>",), reasoning="think", content="say", calls=r"(?!)"
        ),
    )
    message = unbraid.parse(format, "<|m|>think<|c|>hm<|e|><|m|>say<|c|>So <call>f {}</call><|e|>")
    assert (message.reasoning, message.content) == ("hm", "So ")
    assert [call.name for call in message.tool_calls] == ["f"]
