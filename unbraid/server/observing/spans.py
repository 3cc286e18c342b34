"""Spans: what OpenTelemetry is told, by the semantic conventions for `gen_ai` and for HTTP.

A request is one span (`request_spans` says what it is told), and each output of an engine is a child of it. `otel`
hands them to OpenTelemetry; without it, a span is `NO_SPAN`. Prompts and outputs are never part of a span, and neither
are the messages of errors, which may quote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from ...engines import Engine, Generation, Sampling

Attribute = str | int | float | Sequence[str]
Attributes = Mapping[str, Attribute]
_DEFAULT = Sampling()
_PORTS = {"http": 80, "https": 443}


class Span:
    """A span that nobody records."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Give it another name."""

    def headers(self) -> Mapping[str, str]:
        """What makes the spans of another server children of this one."""
        return {}

    def child(self, name: str, remote: bool, attributes: Attributes) -> Span:
        """A span for a part of what is done. `remote`: another server does it."""
        return self

    def fail(self, kind: str) -> None:
        """What it is about has failed, and not by the fault of who asked for it."""

    def end(self) -> None:
        """What it is about is over."""


NO_SPAN = Span()


class Tracer(Protocol):
    """Makes the spans of requests."""

    def request(self, method: str, headers: Mapping[str, str], attributes: Attributes) -> Span:
        """The span of a request that came with `headers`."""
        ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


def engine_attributes(engine: Engine, generation: Generation) -> tuple[str, bool, Attributes]:
    """The name of the span of an engine's output, whether another server makes it, and what is known at its start."""
    found: dict[str, Attribute] = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": type(engine).__name__.removesuffix("Engine").lower(),
        **sampling_attributes(generation),
    }
    if engine.model:
        found["gen_ai.request.model"] = engine.model
    return f"text_completion {engine.model}".strip(), bool(getattr(engine, "replicas", ())), found


def server_attributes(url: str) -> Attributes:
    """Which server a request goes to."""
    found = urlsplit(url)
    return {"server.address": found.hostname or "", "server.port": found.port or _PORTS.get(found.scheme, 0)}


def sampling_attributes(generation: Generation) -> dict[str, Attribute]:
    """How the output was to be chosen, the server's settings included."""
    sampling = generation.sampling
    found: dict[str, Attribute] = {
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
    }
    if generation.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = generation.max_tokens
    if sampling.seed is not None:
        found["gen_ai.request.seed"] = sampling.seed
    for name in ("top_k", "presence_penalty", "frequency_penalty"):
        if getattr(sampling, name) != getattr(_DEFAULT, name):
            found[f"gen_ai.request.{name}"] = getattr(sampling, name)
    return found
