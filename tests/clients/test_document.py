"""docs/clients.md says what the tests do."""

from __future__ import annotations

from .write import DOCUMENT, document


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.clients.write"
