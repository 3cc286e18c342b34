"""vLLM's metric of tool parsers: ours are counted as its own are."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from .server import TOOLS, ResponsesRequest, chat

prometheus = pytest.importorskip("prometheus_client")
metrics: Any = importlib.import_module("vllm.parser.metrics")
combined_parser: Any = importlib.import_module("unbraid.plugins.vllm.deltas")


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The counter as a server makes it, in a registry of its own."""
    labels = ["model_name", "mode", "outcome", "request_type"]
    made = prometheus.Counter("parsers", "", labelnames=labels, registry=prometheus.CollectorRegistry())
    monkeypatch.setattr(metrics, "_tool_call_parser_invocations", made)
    monkeypatch.setattr(metrics, "_model_name", "m")
    return made


def counts(counter: Any) -> dict[Any, float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def requests() -> list[Any]:
    return [chat(tools=TOOLS), ResponsesRequest(input="?", model="m"), object()]


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("kind", range(3))
def test_a_delta_is_counted_as_vllm_counts_it(counter: Any, called: bool, kind: int) -> None:
    request = requests()[kind]
    combined_parser.delta_counter(request, called)(1)
    ours = counts(counter)
    assert list(ours.values()) == [1]
    metrics.record_tool_parser_invocation(is_tool_called=called, is_streaming=True, request=request)
    assert counts(counter) == dict.fromkeys(ours, 2)


def test_without_metrics_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_tool_call_parser_invocations", None)
    combined_parser.delta_counter(chat(), True)(1)


def test_other_labels_are_left_to_vllm(counter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def record(*, is_tool_called: bool, is_streaming: bool, request: object) -> None:
        asked.append(is_tool_called)

    monkeypatch.setattr(metrics, "_tool_call_parser_invocations", prometheus.Counter("other", "", registry=None))
    monkeypatch.setattr(metrics, "record_tool_parser_invocation", record)
    combined_parser.delta_counter(chat(), True)(1)
    assert asked == [True]


def total(counter: Any) -> dict[str, float]:
    """The deltas without a call, and with one."""
    return {dict(labels)["outcome"]: value for labels, value in counts(counter).items()}


def test_deltas_are_passed_on_together(counter: Any) -> None:
    deltas = combined_parser.DeltaCounts(chat(tools=TOOLS))
    for number in range(combined_parser.BATCH):
        assert sum(total(counter).values()) == 0
        deltas.add(number % 4 == 0)
    assert total(counter) == {"no_tool_call": combined_parser.BATCH * 3 / 4, "tool_call": combined_parser.BATCH / 4}


def test_no_delta_is_lost(counter: Any) -> None:
    deltas = combined_parser.DeltaCounts(chat(tools=TOOLS))
    deltas.add(False)
    deltas.flush()
    deltas.flush()
    assert total(counter) == {"no_tool_call": 1, "tool_call": 0}
    deltas.add([1])
    del deltas  # whoever reads the stream leaves
    assert total(counter) == {"no_tool_call": 1, "tool_call": 1}
