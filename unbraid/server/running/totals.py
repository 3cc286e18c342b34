"""The metrics of several processes, added up.

Counters, histograms and most gauges are sums. Of gauges that say whether something is up, the least counts; of those
that say how long it took, the greatest. A worker that ends takes its gauges with it and leaves its counters: a counter
that falls would look like a restart of all. When a series began is the earliest of its beginnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name and labels."""


class Totals:
    """What each worker told last, and what those left that have ended."""

    def __init__(self) -> None:
        self._told: dict[int, str] = {}
        self._ended: list[str] = []

    def tell(self, worker: int, text: str) -> None:
        """The metrics of a worker, as Prometheus reads them."""
        self._told[worker] = text

    def end(self, worker: int) -> None:
        """The worker has ended."""
        last = self._told.pop(worker, None)
        if last is not None:
            kept = [family for family in text_string_to_metric_families(last) if family.type != "gauge"]
            self._ended = [_text(_added([*self._families(self._ended), kept]))]

    def text(self) -> str:
        """All of them, added up."""
        return _text(_added(self._families([*self._ended, *self._told.values()])))

    def _families(self, texts: Iterable[str]) -> list[Iterable[Metric]]:
        return [text_string_to_metric_families(text) for text in texts]


def _both(family: Metric, name: str, one: float, other: float) -> float:
    """The value of a series that two workers have."""
    if name.endswith("_created") or (family.type == "gauge" and name.endswith("_up")):
        return min(one, other)
    return max(one, other) if family.type == "gauge" and name.endswith("_seconds") else one + other


def _added(several: Iterable[Iterable[Metric]]) -> Mapping[str, Metric]:
    found: dict[str, Metric] = {}
    values: dict[Series, float] = {}
    for families in several:
        for family in families:
            known = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                series = sample.name, tuple(sorted(sample.labels.items()))
                if series not in values:
                    known.samples.append(sample)
                    values[series] = sample.value
                else:
                    values[series] = _both(family, sample.name, values[series], sample.value)
    for family in found.values():
        family.samples = [
            sample._replace(value=values[sample.name, tuple(sorted(sample.labels.items()))])
            for sample in family.samples
        ]
    return found


def _text(families: Mapping[str, Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    return generate_latest(registry).decode()


class _Fixed(Collector):
    """Metrics as they are."""

    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families.values()
