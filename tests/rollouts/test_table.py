"""The table in docs/rollouts.md is up to date."""

from __future__ import annotations

import pytest

from ..support.places import absent
from ..templates.prompt_models import ALL_TEMPLATES, TEMPLATES
from .write import DOCUMENT, document


@pytest.mark.skipif(not ALL_TEMPLATES, reason=absent(TEMPLATES))
def test_the_table_is_up_to_date() -> None:
    assert document() == DOCUMENT.read_text(encoding="utf-8"), "run python -m tests.rollouts.write"
