"""JSON Schema's own test suite, draft 2020-12: what a syntax takes beyond a schema, it says, and it takes no less."""

from __future__ import annotations

import pytest

from ..support.sdists import NoSdist
from .schema_suite import FETCHED, count, fetch_suite, suite_folder

ABSENT = "no JSON Schema test suite here: set UNBRAID_JSON_SCHEMA_SUITE to a checkout of it, or run `make test-system`"
RIGHT = {"lark": 855, "gbnf": 812, "ebnf": 812, "structural tag": 819}
"""How many of the 1,119 cases of the pinned package are right; all others are said."""


def check_suite(syntax: str) -> None:
    folder = suite_folder()
    if folder is None:
        pytest.skip(ABSENT)
    counted = count(folder, syntax)
    assert counted.wrong == []
    if folder.is_relative_to(FETCHED):
        assert counted.right >= RIGHT[syntax], f"{counted.right} are right, {counted.said} said"
    assert counted.right > 2 * counted.said


@pytest.mark.parametrize("syntax", RIGHT)
def test_what_is_not_right_is_said(syntax: str) -> None:
    check_suite(syntax)


@pytest.mark.system
def test_the_suite_that_comes_with_a_package() -> None:
    try:
        fetch_suite()
    except NoSdist as error:
        pytest.skip(str(error))
    check_suite("lark")
