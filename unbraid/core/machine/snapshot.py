"""A machine's state as plain values, and back.

Every frame names the attributes that make up its state (`Frame.saved`); all else follows from the format and from what
stands below the frame. So saving and restoring are written once, here. The values are those that JSON has, and three
kinds of objects of the notations, each under a key of its own. They stand in rows, in the order of the names: servers
send a state along with every chunk of a stream, so it is small, and quick to make and to read.

**How large it gets.** The only part that grows with the output is text that is held back, up to `Limits.held`: law 4
(docs/laws.md#law-4) lists the cases. All else is bounded by the format and by the other `Limits`: the brackets that are
open, the names of the arguments that have come, and digests of the ids that a model gave.

A snapshot is for the same version of unbraid, and a parser with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from ...errors import InvalidSnapshot
from ..limits import Limits
from ..notations.base import ObjectWriter
from ..notations.json_scanner import JsonScanner
from ..tally import Tally
from .driver import Driver
from .machine import Frame
from .output import PendingCall

_VERSION = 10
_PLAIN = frozenset((str, int, bool, type(None)))
Row = Sequence[Any]
Reader = Callable[[Any], Row]
"""Reads some attributes of an object, all at once."""


def _reader(names: Sequence[str]) -> Reader:
    if not names:
        return lambda _: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda of: (read(of),)


_STATE = (
    *("trail", "gaps", "reading_call", "call_count", "awaits_end", "sections", "stray_audio"),
    *("marks", "code_tail", "put_back", "started", "finished", "prose", "in_message", "names_headers"),
)
_read_state, _read_call, _read_scanner = map(_reader, (_STATE, PendingCall.__slots__, JsonScanner.saved))
_NO_CALL = _read_call(PendingCall())


def save(driver: Driver) -> dict[str, Any]:
    """The whole state, in values that JSON has."""
    state = [driver.offset, driver.ids.save(), encode(state_of(driver))]
    return {"version": _VERSION, "format": driver.format.name, "state": state}


def load(driver: Driver, snapshot: dict[str, Any]) -> None:
    if not isinstance(snapshot, dict):
        raise InvalidSnapshot(f"a snapshot is a dict, not {type(snapshot).__name__}")
    if snapshot.get("version") != _VERSION or snapshot.get("format") != driver.format.name:
        raise InvalidSnapshot(
            f"not a snapshot of a parser for {driver.format.name!r}: it says format {snapshot.get('format')!r}, "
            f"version {snapshot.get('version')!r}"
        )
    try:
        offset, ids, state = encode(snapshot.get("state"))  # a copy: the parser goes on with it
        driver.offset = offset
        driver.ids.load(ids)
        driver.ids.seed()
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidSnapshot(f"this snapshot is damaged: {error!r}") from error
    load_state(driver, state)


def state_of(driver: Driver) -> Row:
    """The state, but for the offset and the ids of calls: while plain text passes, it stays the same (`Machine.moves`),
    and many streams are in the same. Its lists go on changing with the parser, and what is no plain value is still to
    be encoded."""
    call = _read_call(driver.call)
    return (
        driver.buffer[driver.position :],
        [(frame.kind, _frame_reader(type(frame))(frame)) for frame in driver.stack],
        None if call == _NO_CALL else call,
        None if driver.detokenizer is None else driver.detokenizer.save(),
        None if driver.tally is None else _reader(_names_of(driver.tally))(driver.tally.up_to_date()),
        _read_state(driver),
    )


def load_state(driver: Driver, saved: Any) -> None:
    """Go on from what `state_of` returned, encoded. Its lists belong to the parser now."""
    driver.moves += 1
    try:
        buffer, frames, call, detokenizer, tally, state = saved
        if (tally is None) != (driver.tally is None):
            raise InvalidSnapshot("only one of the two parsers counts tokens: restore it with the same `count_tokens`")
        if detokenizer is not None and driver.detokenizer is None:
            raise InvalidSnapshot(
                "this snapshot is of a parser that read token ids: restore it with the same tokenizer"
            )
        if driver.detokenizer is not None:
            if detokenizer is None:
                driver.set_up(None)
            else:
                driver.detokenizer.load(detokenizer)
        driver.buffer, driver.position = buffer, 0
        driver.call = PendingCall()
        if call is not None:
            _restore(driver.call, PendingCall.__slots__, call, driver.limits)
        _load_frames(driver, frames)
        _restore(driver, _STATE, state, driver.limits)
        if driver.tally is not None:
            _writer(_names_of(driver.tally))(driver.tally, tally)
        driver.choose_fast_path()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, StopIteration) as error:
        raise InvalidSnapshot(f"this snapshot is damaged: {error!r}") from error


def _load_frames(driver: Driver, rows: Sequence[Row]) -> None:
    """The stack. What a frame is follows from its kind, its strand and what stands below it. So the lowest ones that
    are as they should be stay, and so does the first that is not, with another state."""
    stack = driver.stack
    kept = 0
    for frame, (kind, values) in zip(stack, rows, strict=False):
        if frame.kind != kind:
            break
        now = _frame_reader(type(frame))(frame)
        if list(now) != values:
            if _strand(frame, now) == _strand(frame, values):
                _restore(frame, frame.saved, values, driver.limits)
                kept += 1
            break
        kept += 1
    if not kept:
        raise ValueError("the content is missing at the bottom")
    while len(stack) > kept:
        driver.pop()
    for kind, values in rows[kept:]:
        frame_type = Frame.registry[kind]
        frame = frame_type.resume(driver, dict(zip(frame_type.saved, values, strict=True)))
        _restore(frame, frame.saved, values, driver.limits)
        driver.stack.append(frame)  # not `push`: what opened it is not known any more
        frame.entered(driver)


def _strand(frame: Frame, row: Row) -> Any:
    return dict(zip(frame.saved, row, strict=True)).get("strand")


@cache
def _frame_reader(kind: type[Frame]) -> Reader:
    return _reader(kind.saved)


def _names_of(tally: Tally) -> tuple[str, ...]:
    return tuple(name for each in type(tally).__mro__ for name in getattr(each, "__slots__", ()))


@cache
def _writer(names: tuple[str, ...]) -> Callable[[object, Row], None]:
    """What sets these attributes of an object, all at once. It is compiled, as a loop takes several times as long."""
    scope: dict[str, Callable[[object, Row], None]] = {}
    exec(f"def write(what, row): [{', '.join(f'what.{name}' for name in names)}] = row", scope)
    return scope["write"]


def _restore(what: object, names: tuple[str, ...], row: Row, limits: Limits) -> None:
    _writer(names)(what, row)
    if dict in map(type, row):
        for name, value in zip(names, row, strict=True):
            if type(value) is dict:
                setattr(what, name, decode(value, limits))


def decode(value: dict[str, Any], limits: Limits) -> Any:
    """The object that `encode_object` encoded."""
    ((kind, state),) = value.items()
    if kind == "keys":
        return ObjectWriter(state)
    if kind != "scanner":
        raise ValueError(f"no value of a kind {kind!r}")
    scanner = JsonScanner(limits)
    _writer(JsonScanner.saved)(scanner, state)
    return scanner


def encode(value: Any) -> Any:
    """A value of a state as one that JSON can hold."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    fields = value if isinstance(value, dict) else encode_object(value)
    return {kind: encode(state) for kind, state in fields.items()}


def encode_object(value: Any) -> dict[str, Any]:
    """An object of a notation as one that is to be encoded in turn."""
    if isinstance(value, ObjectWriter):
        return {"keys": value.keys()}
    if isinstance(value, JsonScanner):
        return {"scanner": _read_scanner(value)}
    raise TypeError(f"a state cannot hold {type(value).__name__}")
