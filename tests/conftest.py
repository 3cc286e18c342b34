"""How much the property tests try.

The ordinary run tries the same examples every time, so that it passes or fails for a change and not by chance. The long
run (`make test-long`) tries 33 times as many, new ones each time. A test that wants more or fewer takes a multiple of
these numbers (`tests/support/examples.py`).
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .support.places import ROOT
from .support.shared_certificates import share_certificates
from .support.system import Running

# What the shared suites assert is told as if it stood in a test.
pytest.register_assert_rewrite(
    "tests.clients.client_suite",
    "tests.clients.client_suite_dialects",
    "tests.clients.client_suite_others",
    "tests.support.laws",
    "tests.support.running_server",
)

# A shell that runs the tests in the background lets them ignore Ctrl-C, and so would the processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers that the tests start keep their responses here, not where the user's are.
_stored = tempfile.mkdtemp(prefix="unbraid-tests-")
os.environ["UNBRAID_STORE"] = os.path.join(_stored, "responses.sqlite")
atexit.register(shutil.rmtree, _stored, ignore_errors=True)

share_certificates()

# No deadlines: shared machines are noisy, and no test here is about time.
_always = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
settings.register_profile("ordinary", _always, max_examples=6, derandomize=True)
settings.register_profile("long", _always, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))

LONGEST = (
    "tests/ray/",
    "tests/docs/test_blocks.py",
    "tests/clients/",
    "tests/server/playground/",
    "tests/speech/test_transcriber.py",
    "tests/soak/",
)
"""What takes longest comes first, so that no process of the tests works alone at the end."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of all tests but those of the system does not import what only those need: clients, Ray, speech."""
    whole = all(Path(config.rootpath, name) in (ROOT, ROOT / "tests") for name in config.args)
    if not whole or "not system" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.system\n" in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: next((at for at, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tell `tests/support/system.py` which test runs."""
    Running.test = item
    try:
        return (yield)
    finally:
        Running.test = None
