"""What only the tests of the whole system may use: `make test-system` runs them, `make test` does not.

Whatever needs npm, a browser, a Ray cluster, recorded speech, a second model or a server of its own as a child process
calls `system_only` first. In a test without the mark `system` (or `slow`) it fails, so that `make test` stays quick
and downloads one small model at most.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
T = TypeVar("T")


class Running:
    """The test that runs now; None while tests are collected, and for programs that are no tests."""

    test: pytest.Item | None = None


def system_only(what: str) -> None:
    """Fail a test that uses `what` and is not marked for it."""
    test = Running.test
    if test is not None and not any(test.iter_markers("system")) and not any(test.iter_markers("slow")):
        pytest.fail(f"this test uses {what}: mark it with pytest.mark.system, so that only `make test-system` runs it")


def for_system_tests(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The same before each call of a function, a cached one too."""

    def guard(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            system_only(what)
            return function(*args, **kwargs)

        return guarded

    return guard
