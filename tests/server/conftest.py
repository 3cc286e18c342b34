"""What the tests of the dialects share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..support.scripted_server import Scripted


@pytest.fixture(scope="module")
def running() -> Iterator[Scripted]:
    """A server whose engine plays what a test tells it, one for each module."""
    scripted = Scripted()
    scripted.server.start()
    yield scripted
    scripted.server.stop()
