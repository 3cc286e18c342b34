"""The property tests of the suite as targets: Hypothesis makes its examples of the fuzzer's bytes.

So each law that is added to the tests is fuzzed, and each format that is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core import test_laws, test_token_laws
from ..source import Source

Bytes = Callable[[bytes], object]


def laws(data: bytes) -> None:
    _one_of(test_laws, data)


def token_laws(data: bytes) -> None:
    _one_of(test_token_laws, data)


def _one_of(module: ModuleType, data: bytes) -> None:
    source = Source(data)
    cases = _cases(module)
    cases[source.below(len(cases))](source.bytes())


@cache
def _cases(module: ModuleType) -> list[Bytes]:
    """Every property of a module, with every value of its parameters."""
    return [
        of_bytes(partial(test.hypothesis.inner_test, **values))
        for test in vars(module).values()
        if hasattr(test, "hypothesis")
        for values in _parameters(test)
    ]


def _parameters(test: Any) -> Iterator[dict[str, Any]]:
    marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    assert all(isinstance(names, str) and "," not in names for names, _ in marks), "one parameter to a mark"
    for values in product(*(values for _, values in marks)):
        yield dict(zip([name for name, _ in marks], values, strict=True))


def of_bytes(test: Callable[..., None]) -> Bytes:
    """A property that draws all it needs from `data`, as a target."""

    def tried(data: st.DataObject) -> None:
        test(data=data)

    quiet = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    made: Any = quiet(given(data=st.data())(tried))
    fuzz: Bytes = made.hypothesis.fuzz_one_input
    return fuzz
