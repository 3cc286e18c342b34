"""The server is as it describes itself: every route is described, and every reply is as the description says.

`make fuzz` does the same for longer (`tests/fuzz/targets/api.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.api.openapi import description
from unbraid.server.app import _ROUTES

from ..support.described_api import DescribedApi

OPERATIONS = [f"{method.upper()} {path}" for path, methods in description()["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def api() -> Iterator[DescribedApi]:
    described = DescribedApi()
    yield described
    described.close()


def test_every_route_is_described() -> None:
    assert sorted(OPERATIONS) == sorted(f"{method} {path.replace(':path', '')}" for path, method, _, _ in _ROUTES)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if not one.endswith("/openapi.json")])
def test_replies_are_as_described(api: DescribedApi, operation: str) -> None:
    """All but the description itself, which Schemathesis has read by then."""

    @given(data=st.data())
    def tried(data: Any) -> None:
        api.check(data.draw(api.cases(operation)), data.draw(st.booleans()))

    tried()
