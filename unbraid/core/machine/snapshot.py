"""A machine's state as plain values, and back.

Every frame names the attributes that make up its state (`Frame.saved`); all else follows from the format and from what
stands below the frame. So saving and restoring are written once, here. The values are those that JSON has, and three
kinds of objects of the notations, each under a key of its own.

A snapshot is for the same version of unbraid, and a parser with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from ...errors import InvalidSnapshot
from ..limits import Limits
from ..notations.base import ObjectWriter
from ..notations.json_scanner import JsonScanner
from ..tally import Tally
from .driver import Driver
from .machine import Frame
from .pending_call import PendingCall

_VERSION = 5
_STATE = (
    *("trail", "offset", "gaps", "reading_call", "call_count", "awaits_end", "sections", "stray_audio"),
    *("marks", "code_tail", "started", "finished"),
)


def save(driver: Driver) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "format": driver.format.name,
        "buffer": driver.buffer[driver.position :],
        "frames": [{"kind": frame.kind, **_values(frame, frame.saved)} for frame in driver.stack],
        "call": _values(driver.call, PendingCall.__slots__),
        "ids": driver.ids.save(),
        "detokenizer": driver.detokenizer.save() if driver.detokenizer else None,
        "tally": None if driver.tally is None else _tally(driver.tally),
        **_values(driver, _STATE),
    }


def load(driver: Driver, snapshot: dict[str, Any]) -> None:
    if not isinstance(snapshot, dict):
        raise InvalidSnapshot(f"a snapshot is a dict, not {type(snapshot).__name__}")
    if snapshot.get("version") != _VERSION or snapshot.get("format") != driver.format.name:
        raise InvalidSnapshot(
            f"not a snapshot of a parser for {driver.format.name!r}: it says format {snapshot.get('format')!r}, "
            f"version {snapshot.get('version')!r}"
        )
    if (snapshot.get("tally") is None) != (driver.tally is None):
        raise InvalidSnapshot("only one of the two parsers counts tokens: restore it with the same `count_tokens`")
    if snapshot.get("detokenizer") is not None and driver.detokenizer is None:
        raise InvalidSnapshot("this snapshot is of a parser that read token ids: restore it with the same tokenizer")
    try:
        _load(driver, snapshot)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, StopIteration) as error:
        raise InvalidSnapshot(f"this snapshot is damaged: {error!r}") from error


def _load(driver: Driver, snapshot: dict[str, Any]) -> None:
    if driver.detokenizer is not None:
        if snapshot["detokenizer"] is None:
            driver.set_up(None)
        else:
            driver.detokenizer.load(snapshot["detokenizer"])
    driver.buffer, driver.position = snapshot["buffer"], 0
    driver.ids.load(snapshot["ids"])
    driver.call = PendingCall()
    _restore(driver.call, PendingCall.__slots__, snapshot["call"], driver.limits)
    content, *frames = snapshot["frames"]
    while len(driver.stack) > 1:
        driver.pop()
    _restore(driver.stack[0], driver.stack[0].saved, content, driver.limits)
    for saved in frames:
        frame = Frame.registry[saved["kind"]].resume(driver, saved)
        _restore(frame, frame.saved, saved, driver.limits)
        driver.push(frame)
    _restore(driver, _STATE, snapshot, driver.limits)
    if driver.tally is not None:
        for name in _tally(driver.tally):
            setattr(driver.tally, name, deepcopy(snapshot["tally"][name]))
    driver.choose_fast_path()


def _tally(tally: Tally) -> dict[str, Any]:
    names = [name for kind in type(tally).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: deepcopy(getattr(tally, name)) for name in names}


def _values(of: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: encode(getattr(of, name)) for name in names}


def _restore(what: object, names: Iterable[str], saved: dict[str, Any], limits: Limits) -> None:
    for name in names:
        setattr(what, name, decode(saved[name], limits))


def encode(value: Any) -> Any:
    """A value of a frame as one that JSON can hold."""
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    if isinstance(value, ObjectWriter):
        return {"keys": value.keys()}
    if isinstance(value, JsonScanner):
        return {"scanner": _values(value, JsonScanner.saved)}
    return value


def decode(value: Any, limits: Limits) -> Any:
    """The other way round."""
    if isinstance(value, list):
        return [decode(item, limits) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, state),) = value.items()
    if kind == "set":
        return frozenset(state)
    if kind == "keys":
        return ObjectWriter(state)
    if kind != "scanner":
        raise ValueError(f"no value of a kind {kind!r}")
    scanner = JsonScanner(limits)
    _restore(scanner, JsonScanner.saved, state, limits)
    return scanner
