"""vLLM's metric of tool parsers: every delta of a stream is counted, with a call or without.

vLLM's own function looks up the labels for each delta, which takes longer than all of the parsing. They are the same
for a response, so they are looked up once. And counting takes a lock, so the deltas of a response are counted here and
passed on `BATCH` at a time, at the end of the response, and when it is given up. The total is vLLM's; while a response
runs, it may be that many deltas behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import vllm.parser.metrics as _metrics

BATCH = 32
"""So many deltas are passed on together."""

Count = Callable[[int], object]
"""Counts so many deltas."""


class DeltaCounts:
    """Counts the deltas of one response."""

    __slots__ = ("_called", "_room", "_silent", "_with", "_without")

    def __init__(self, request: Any) -> None:
        self._without, self._with = (delta_counter(request, called) for called in (False, True))
        self._silent = self._called = 0
        """The deltas without a call, and with one, that were not passed on."""
        self._room = BATCH

    def add(self, called: object) -> None:
        """A delta comes, with a call or without."""
        if called:
            self._called += 1
        else:
            self._silent += 1
        self._room -= 1
        if not self._room:
            self.flush()

    def flush(self) -> None:
        """Pass on what was counted."""
        if self._silent:
            self._without(self._silent)
        if self._called:
            self._with(self._called)
        self._silent = self._called = 0
        self._room = BATCH

    def __del__(self) -> None:
        self.flush()  # whoever reads the stream may leave before it ends


def delta_counter(request: Any, called: bool) -> Count:
    """What counts deltas with a call, or without, in vLLM's metrics."""
    counter = getattr(_metrics, "_tool_call_parser_invocations", None)
    kind: Any = type(request)
    found = None if counter is None else _child(counter, getattr(_metrics, "_model_name", None), kind, called)
    return found or partial(_one_by_one, request, called)


def _one_by_one(request: Any, called: bool, deltas: int) -> None:
    """As vLLM does it."""
    for _ in range(deltas):
        _metrics.record_tool_parser_invocation(is_tool_called=called, is_streaming=True, request=request)


@lru_cache(maxsize=32)
def _child(counter: Any, model: Any, request: Any, called: bool) -> Count | None:
    """The counter for these labels; None where it has others than in the versions that this is made for."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    try:
        outcomes, types = _metrics.ToolCallOutcome, _metrics.RequestType
        kind = types.RESPONSES if issubclass(request, ResponsesRequest) else types.OTHER
        kind = types.CHAT_COMPLETIONS if issubclass(request, ChatCompletionRequest) else kind
        found: Count = counter.labels(
            model_name=model,
            mode="streaming",
            outcome=(outcomes.TOOL_CALL if called else outcomes.NO_TOOL_CALL).value,
            request_type=kind.value,
        ).inc
    except (AttributeError, ValueError):
        return None
    return found
