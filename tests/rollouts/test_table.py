"""The tables in docs/rollouts.md are up to date."""

from __future__ import annotations

import pytest

from ..support.places import absent
from ..templates.prompt_models import ALL_TEMPLATES, TEMPLATES
from .write import DOCUMENT, before, document, vendors


@pytest.mark.skipif(not ALL_TEMPLATES, reason=absent(TEMPLATES))
def test_the_table_of_vendors_is_up_to_date() -> None:
    written = DOCUMENT.read_text(encoding="utf-8").removeprefix(before())
    assert written.partition("\n")[2].startswith(vendors()), "run python -m tests.rollouts.write"


@pytest.mark.slow
@pytest.mark.skipif(not ALL_TEMPLATES, reason=absent(TEMPLATES))
def test_the_whole_document_is_up_to_date() -> None:
    assert document() == DOCUMENT.read_text(encoding="utf-8"), "run python -m tests.rollouts.write"
