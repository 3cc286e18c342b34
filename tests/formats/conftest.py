"""What tests of formats share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unbraid.formats import registry


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry that is put back afterwards, with what is kept of it."""
    with monkeypatch.context() as patch:
        for name in ("_formats", "_names", "_aliases"):
            patch.setattr(registry, name, dict(getattr(registry, name)))
        yield
    registry._find.cache_clear()
