"""What workers are asked to do in the tests. Workers find functions by their names."""

from __future__ import annotations

import os
import signal

from unbraid.metering import spend, working_on
from unbraid.server.errors import ApiError
from unbraid.server.model import Model


def add(one: int, other: int) -> int:
    return one + other


def pid() -> int:
    return os.getpid()


def niceness() -> int:
    return os.nice(0)


def spin() -> None:
    """Never ends, and asks no meter."""
    while True:
        pass


def spin_metered(place: str = "") -> None:
    working_on(place)
    while True:
        spend()


def begin_to_spin(path: str) -> None:
    """Says that it has begun, in a file, and never ends."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    spin()


def refuse() -> None:
    raise ApiError(418, "no", param="x", code="teapot", retry_after=2.0)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def swallow_memory() -> int:
    return len([bytes(1 << 28) for _ in range(1 << 10)])  # none of it is touched


def shout() -> str:
    print("this belongs in the log")
    return "quiet"


def model_itself(model: Model) -> Model:
    return model


def context_of(model: Model) -> int | None:
    return model.context


def format_name(model: Model) -> str:
    return model.format.name


class OnlyHere:
    """Can be pickled, and cannot be read in another process: as an object of a class that only a script has."""

    def __reduce__(self) -> tuple[object, ...]:
        return only_here, (os.getpid(),)


def only_here(process: int) -> OnlyHere:
    if process != os.getpid():
        raise ImportError("it is not known here")
    return OnlyHere()
