"""A small slice of the soak, with as many kills as it takes for outputs to move."""

from __future__ import annotations

import asyncio
import sys

import pytest

from .run import soak

pytestmark = pytest.mark.system


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc")
def test_a_slice_of_the_soak() -> None:
    figures = asyncio.run(soak(24, 0.7, lambda found: found.kills >= 4 and found.replies >= 100, pace=0.03))
    assert figures.problems == []
    assert figures.leaks() == []
    assert figures.moved > 0
    assert figures.hostile > 0
