"""The real detector for tests, from PyPI into the tests' cache."""

from __future__ import annotations

from functools import cache

import pytest

from unbraid.models import ModelError
from unbraid.speech.audio.vad import SpeechDetector, resolve_vad

from ...support.places import CACHE


@cache
def detector() -> SpeechDetector:
    """Silero's, loaded once; skips the test where it cannot be had."""
    try:
        return SpeechDetector(resolve_vad(cache=CACHE, progress=None))
    except ModelError as error:
        pytest.skip(f"silero-vad cannot be had: {error}")
