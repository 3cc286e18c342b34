"""Messages for vLLM: those that are made quickly are those that vLLM would make."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from unbraid.core.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from unbraid.formats import find

pytest.importorskip("vllm")
protocol: Any = importlib.import_module("vllm.entrypoints.generate.base.protocol")
deltas: Any = importlib.import_module("unbraid.plugins.vllm.deltas")

TEXT = 'a "text"\n'


def a_call(**fields: Any) -> Any:
    return protocol.DeltaToolCall(
        **{**fields, "function": protocol.DeltaFunctionCall(**fields["function"])},
    )


CASES: list[tuple[list[Event], Any]] = [
    ([Content(TEXT, 0, 9)], protocol.DeltaMessage(content=TEXT)),
    ([Reasoning(TEXT, 0, 9)], protocol.DeltaMessage(reasoning=TEXT)),
    (
        [ToolCallArguments(2, TEXT, 0, 9)],
        protocol.DeltaMessage(tool_calls=[a_call(index=2, function={"arguments": TEXT})]),
    ),
    (
        [ToolCallArguments(2, "}", 0, 1), ToolCallEnd(2, True, "", 1, 1)],
        protocol.DeltaMessage(tool_calls=[a_call(index=2, function={"arguments": "}"})]),
    ),
    (
        [ToolCallStart(0, "call_1", "f", 0, 1), ToolCallArguments(0, "{", 1, 2)],
        protocol.DeltaMessage(
            tool_calls=[a_call(index=0, id="call_1", type="function", function={"name": "f", "arguments": "{"})]
        ),
    ),
    (
        [Content(TEXT, 0, 9), ToolCallStart(0, "call_1", "f", 0, 1)],
        protocol.DeltaMessage(
            content=TEXT,
            tool_calls=[a_call(index=0, id="call_1", type="function", function={"name": "f", "arguments": ""})],
        ),
    ),
]


def models(message: Any) -> list[Any]:
    calls = message.tool_calls
    return [message, *calls, *(call.function for call in calls)]


@pytest.mark.parametrize(("events", "expected"), CASES)
def test_a_delta_is_what_vllm_makes(events: list[Event], expected: Any) -> None:
    made = deltas.as_delta(events, find("hermes"))
    assert made == expected
    assert repr(made) == repr(expected)
    for ours, theirs in zip(models(made), models(expected), strict=True):
        assert type(ours) is type(theirs)
        assert ours.model_dump() == theirs.model_dump()
        assert ours.model_dump_json(exclude_unset=True) == theirs.model_dump_json(exclude_unset=True)
        assert (ours.model_fields_set, ours.model_extra) == (theirs.model_fields_set, theirs.model_extra)
        assert ours.__pydantic_private__ == theirs.__pydantic_private__
    made.content = "other"  # vLLM changes messages; then this counts as set, in this one only
    assert "content" in made.model_fields_set
    again = deltas.as_delta(events, find("hermes"))
    assert again == expected
    assert again.model_fields_set == expected.model_fields_set


def test_the_messages_are_made_without_validation() -> None:
    assert deltas._arguments is not deltas._of_arguments
    assert deltas._start is not deltas._of_start
    assert deltas._content is not deltas._of_content
