"""How many random examples a property test tries: always a multiple of what the profile says (`tests/conftest.py`).

A number of its own (`@settings(max_examples=25)`) would be the same in the long run. `tests/house/test_hypothesis.py`
finds those.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
"""Whether this is the long run, for tests that count what they try themselves."""


def examples(scale: float, **more: Any) -> settings:
    """`scale` times as many examples as the profile has: more for a test that is cheap, fewer for one that is not."""
    profile = settings.default
    assert profile is not None
    return settings(max_examples=max(1, round(scale * profile.max_examples)), **more)
