"""Jobs and their results as bytes, between the server and its workers.

A model is sent to a worker once. After that it goes by a name, in both directions, and so does its vocabulary: a plan
that comes back refers to the server's own. Everything else is pickled. Functions go by name, so they must be found in
their modules.

Both ends are ours, and nothing of a client's is unpickled: what clients send travels as plain values inside a job.
"""

from __future__ import annotations

import itertools
import logging
import pickle
from collections.abc import Callable, Iterable
from typing import Any

from ...core.vocabulary import Vocabulary
from ..model import Model

_log = logging.getLogger(__name__)
_numbers = itertools.count()
_LARGE = ("format", "builder", "encoder")
"""The fields of a model that are sent once."""
_models: dict[str, Model] = {}
"""The models that this process knows, by their names. Those of a server stay as long as it runs."""


def model_named(name: str) -> Model:
    return _models[name]


def vocabulary_named(name: str) -> Vocabulary | None:
    return _models[name].vocabulary


class CannotLearn(Exception):
    """A worker cannot read a model that was sent to it. `args`: its name, and why."""


class SharedModels:
    """The models of one server, as they are sent to its workers. To pickle one holds up the whole process for a moment,
    so that is done once, best before the first request (`add`)."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._sent: dict[str, bytes | None] = {}

    def add(self, model: Model) -> None:
        """Make a model known."""
        if id(model) in self._names:
            return
        self._names[id(model)] = name = f"model-{next(_numbers)}"
        _models[name] = model
        try:
            self._sent[name] = pickle.dumps(model, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # whatever the objects of other libraries raise
            self._sent[name] = None
            _log.warning("requests are worked out in threads alone: the model cannot be sent away (%s)", error)

    def can_be_sent(self, models: Iterable[Model]) -> bool:
        for model in models:
            self.add(model)
            if self._sent[self._names[id(model)]] is None:
                return False
        return True

    def changing(self) -> dict[str, dict[str, Any]]:
        """The small fields of the models that can be sent. They may change: an engine may say late what its context
        is."""
        return {
            name: {field: value for field, value in vars(_models[name]).items() if field not in _LARGE}
            for name, model in self._sent.items()
            if model is not None
        }

    def withdraw(self, name: str, why: str) -> None:
        """Send a model no more: a worker could not read it."""
        if self._sent.get(name) is not None:
            self._sent[name] = None
            _log.warning("requests are worked out in threads alone: the model cannot be read elsewhere (%s)", why)

    def sent(self, name: str) -> bytes:
        """A model, for `learn`."""
        model = self._sent[name]
        assert model is not None
        return model

    def forget(self) -> None:
        for name in self._sent:
            del _models[name]
        self._names.clear()
        self._sent.clear()


def learn(name: str, model: bytes) -> None:
    """In a worker: know a model by a name."""
    try:
        _models[name] = pickle.loads(model)
    except Exception as error:  # whatever the objects of other libraries raise
        raise CannotLearn(name, f"{type(error).__name__}: {error}") from error


def prepare() -> None:
    """In a worker: have the templates compiled before the first request."""
    for model in _models.values():
        if model.builder is not None:
            model.builder.prepare()


def update(changing: dict[str, dict[str, Any]]) -> None:
    """In a worker: the models as they are now."""
    for name, fields in changing.items():
        vars(_models[name]).update(fields)


class _Parts:
    """A file that keeps what is written to it as it is. A pickler writes long texts and bytes by themselves, so they
    are not copied, which would hold up the whole process."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, part: bytes) -> int:
        self.parts.append(part)
        return len(part)


class _Pickler(pickle.Pickler):
    def __init__(self, file: _Parts) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._references: dict[int, tuple[Callable[[str], Any], str]] = {}
        for name, model in _models.items():
            self._references[id(model)] = model_named, name
            if model.vocabulary is not None:
                self._references[id(model.vocabulary)] = vocabulary_named, name

    def reducer_override(self, value: Any) -> Any:
        reference = self._references.get(id(value))
        return NotImplemented if reference is None else (reference[0], (reference[1],))


def packed(value: Any) -> list[bytes]:
    """A value as bytes, in parts."""
    file = _Parts()
    _Pickler(file).dump(value)
    return file.parts


def unpacked(data: bytes) -> Any:
    return pickle.loads(data)


def packed_error(error: BaseException) -> tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]:
    """An exception, whatever arguments its class takes."""
    return type(error), error.args, vars(error)


def raised(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error
