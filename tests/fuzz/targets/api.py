"""A running server against its own description: requests by Schemathesis, made of the fuzzer's bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from ...support.described_api import DescribedApi
from ..source import Source
from .properties import Bytes, of_bytes


def described(data: bytes) -> None:
    source = Source(data)
    cases = _cases()
    cases[source.below(len(cases))](source.bytes())


@cache
def _cases() -> list[Bytes]:
    api = DescribedApi()

    def case(operation: str) -> Bytes:
        def tried(data: Any) -> None:
            api.check(data.draw(api.cases(operation)), data.draw(st.booleans()))

        return of_bytes(tried)

    return [case(operation) for operation in api.operations]
