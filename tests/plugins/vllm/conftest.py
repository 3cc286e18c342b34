"""For all tests of the plug-in: a call to an unknown tool is text, as `unbraid.parse` has it by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unbraid.plugins.common import UNKNOWN_TOOLS


@pytest.fixture(scope="package", autouse=True)
def unknown_tools() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNKNOWN_TOOLS.name, "text")
        yield
