"""SGLang's parsers, with our detectors installed or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unbraid.plugins import sglang as plugin

from .package import parsers


@pytest.fixture
def sglang() -> Iterator[Any]:
    """SGLang's parsers, as they were again afterwards."""
    found = parsers()
    registries = (found.FunctionCallParser.ToolCallParserEnum, found.ReasoningParser.DetectorMap)
    before = [dict(registry) for registry in registries]
    yield found
    for registry, old in zip(registries, before, strict=True):
        registry.clear()
        registry.update(old)


@pytest.fixture
def installed(sglang: Any) -> Any:
    plugin.install()
    return sglang
