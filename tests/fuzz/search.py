"""The search for an input that a target does not stand.

With atheris, libFuzzer changes inputs and keeps those that reach new code of `unbraid`. Without it, inputs are drawn by
chance: half of them new, half of them old ones with a few bytes changed. Both write the input that a target fails with
into the folder `finds`.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

Target = Callable[[bytes], None]

MOST_BYTES = 2048
"""The longest input."""
MOST_SECONDS = 30
"""What one input may take. It is far more than any needs: what takes longer does not end."""


class TooSlow(Exception):
    """An input that kept its target busy for `MOST_SECONDS`."""


def found(target: Target, data: bytes) -> Exception | None:
    """What a target raises for an input."""
    try:
        with _limited():
            target(data)
    except Exception as error:
        return error
    return None


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"it takes longer than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def keep(folder: Path, data: bytes) -> Path:
    """Write an input down, by the name of what is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def inputs(seed: int | None = None) -> Iterator[bytes]:
    """Inputs by chance, without end."""
    chance = random.Random(seed)
    kept: list[bytearray] = []
    while True:
        if kept and chance.random() < 0.5:
            data = bytearray(chance.choice(kept))
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4)) or b"\0"
        else:
            data = bytearray(chance.randbytes(chance.randint(1, chance.choice([16, 64, 256, MOST_BYTES]))))
        kept = [*kept[-99:], data]
        yield bytes(data)


def by_chance(target: Target, seconds: float, finds: Path) -> Path | None:
    """Try inputs for some time. Returns the file with the first that fails."""
    end, tried = time.monotonic() + seconds, 0
    for data in inputs():
        if time.monotonic() > end:
            break
        tried += 1
        if found(target, data) is not None:
            return keep(finds, data)
    print(f"{tried} inputs")
    return None


def guided(target: Target, seconds: float, finds: Path, corpus: Path) -> None:
    """The same with atheris, which ends the process: with a status other than 0 if it has found something.

    corpus: a folder for the inputs that reach something new. The next run goes on from them.
    """
    import atheris

    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        for data, _ in zip(inputs(seed=0), range(40), strict=False):
            keep(corpus, data)

    def try_one(data: bytes) -> None:
        error = found(target, data)
        if error is not None:
            raise error  # libFuzzer writes the input down

    options = [f"-max_total_time={seconds:.0f}", f"-max_len={MOST_BYTES}", "-rss_limit_mb=0", "-print_final_stats=1"]
    options += [f"-artifact_prefix={finds}/", "-verbosity=0", "-timeout=0", "-report_slow_units=1000000"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], try_one)
    atheris.Fuzz()
