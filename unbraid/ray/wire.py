"""What travels between the API and the replicas of an engine: pickled requests and tokens, and errors.

A constraint refers to the vocabulary of its model, which is large. Both ends have it, so it is not sent: its place is
marked, and the replica puts its own there. Only processes of one Ray cluster talk like this. Data of clients travels as
plain values inside, and is never unpickled itself.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException

from ..core.vocabulary import Vocabulary
from ..engines import EngineBusy, EngineDown, EngineError, EngineFailed, EngineTimeout
from ..engines.http.timeouts import PieceClock, Timeouts
from ..errors import UnbraidError
from ..patience import patient
from ..server.planning.pickling import packed_error, raised

_OWN = "vocabulary"
"""The mark in place of the vocabulary."""
_MOST_SAID = 200
"""Characters of an exception that are kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of an engine, in place of its next output."""

    error: tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]

    @classmethod
    def of(cls, error: UnbraidError) -> Failure:
        """An error of ours. Any other stays an exception of Ray's."""
        return cls(packed_error(error))

    def exception(self) -> BaseException:
        return raised(*self.error)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, vocabulary: Vocabulary | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._vocabulary = vocabulary

    def persistent_id(self, value: Any) -> str | None:
        return _OWN if value is self._vocabulary and value is not None else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, vocabulary: Vocabulary | None) -> None:
        super().__init__(io.BytesIO(data))
        self._vocabulary = vocabulary

    def persistent_load(self, pid: Any) -> Vocabulary | None:
        return self._vocabulary


def packed(request: object, vocabulary: Vocabulary | None) -> bytes:
    """A request as bytes, without the vocabulary."""
    file = io.BytesIO()
    _Pickler(file, vocabulary).dump(request)
    return file.getvalue()


def unpacked(data: bytes, vocabulary: Vocabulary | None) -> Any:
    """A request from bytes, with the vocabulary of the reader."""
    return _Unpickler(data, vocabulary).load()


async def streamed(response: Any, name: str, timeouts: Timeouts) -> AsyncGenerator[Any, None]:
    """The outputs of a replica. Closing the generator cancels the request there. `response` comes from a handle with
    `stream=True`."""
    outputs = aiter(response)
    clock = PieceClock(timeouts)
    began, ended = False, False
    try:
        while True:
            try:
                output = await clock.wait(anext(outputs))
            except StopAsyncIteration:
                ended = True
                return
            except TimeoutError:
                raise EngineTimeout(f"{name} gave no output for {clock.seconds:g} seconds") from None
            except (RayError, RayServeException) as error:
                ended = True
                raise as_engine_error(error, name, began) from error
            began = clock.came = True
            yield _checked(output)
    finally:
        clock.close()
        if not ended:
            response.cancel()


async def answer(response: Any, name: str, seconds: float) -> Any:
    """The one result of a call to a replica."""
    try:
        async with patient(seconds):
            return _checked(await response)
    except TimeoutError:
        raise EngineTimeout(f"{name} gave no answer for {seconds:g} seconds") from None
    except (RayError, RayServeException) as error:
        raise as_engine_error(error, name, begun=False) from error
    finally:
        response.cancel()


def _checked(output: Any) -> Any:
    if isinstance(output, Failure):
        raise output.exception()
    return output


def as_engine_error(error: Exception, name: str, begun: bool) -> EngineError:
    """An exception of Ray's as an error of ours."""
    if isinstance(error, BackPressureError):
        return EngineBusy(f"{name} has as many requests waiting as may wait: try again later")
    why = " ".join(str(error).split())[:_MOST_SAID]
    kind = type(error).__name__
    return EngineFailed(f"{name} broke off: {kind}: {why}") if begun else EngineDown(f"{name}: {kind}: {why}")
