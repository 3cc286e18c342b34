"""For all tests of the plug-in: unknown tools and untyped values are what `unbraid.parse` makes of them by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unbraid.plugins.common import UNKNOWN_TOOLS, UNTYPED_VALUES


@pytest.fixture(scope="package", autouse=True)
def as_the_library_has_it() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNKNOWN_TOOLS.name, "text")
        patch.setenv(UNTYPED_VALUES.name, "json")
        yield
