"""A parser's state as plain values, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import InvalidSnapshot
from ..notations.bare import BareArgumentsFrame
from ..notations.elements import ElementArgumentsFrame, LeafFrame
from ..notations.json import JsonCallFrame, QuotedArgumentsFrame, ValueFrame
from ..notations.python import PythonArgumentsFrame
from ..notations.tagged import ArgumentFrame, PythonArgumentFrame, TaggedArgumentsFrame, TaggedValueFrame
from ..notations.xml import EscapedArgumentsFrame, EscapedValueFrame
from .calls import CallsFrame, PendingCall, ReadBare, ReadElements, ReadJsonCall, ReadTagged
from .frames import Frame
from .headers import HeaderFrame
from .scopes import RepeatedOpenerFrame, ScopeFrame

if TYPE_CHECKING:
    from .machine import Machine

_VERSION = 1
_PLAIN_STATE = (
    "trail",
    "_finished",
    "offset",
    "_code_tail",
    "reading_call",
    "_call_count",
    "_speech_count",
    "_started",
    "_stray_audio",
)


def save(machine: Machine) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "format": machine.format.name,
        "buffer": machine.buffer[machine.position :],
        "frames": [[frame.kind, *frame.save()] for frame in machine.stack],
        "call": machine.call.save(),
        "ids": machine._ids.save(),
        "detokenizer": machine._detokenizer.save() if machine._detokenizer else None,
        "gaps": [list(gap) for gap in machine._gaps],
        **{name: getattr(machine, name) for name in _PLAIN_STATE},
    }


def load(machine: Machine, snapshot: dict[str, Any]) -> None:
    if not isinstance(snapshot, dict):
        raise InvalidSnapshot(f"a snapshot is a dict, not {type(snapshot).__name__}")
    if snapshot.get("version") != _VERSION or snapshot.get("format") != machine.format.name:
        raise InvalidSnapshot(
            f"not a snapshot of a parser for {machine.format.name!r}: it says format {snapshot.get('format')!r}, "
            f"version {snapshot.get('version')!r}"
        )
    if snapshot.get("detokenizer") is not None and machine._detokenizer is None:
        raise InvalidSnapshot("this snapshot is of a parser that read token ids: restore it with the same tokenizer")
    try:
        _load(machine, snapshot)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, StopIteration) as error:
        raise InvalidSnapshot(f"this snapshot is damaged: {error!r}") from error


def _load(machine: Machine, snapshot: dict[str, Any]) -> None:
    if machine._detokenizer is not None:
        if snapshot["detokenizer"] is None:
            machine.set_up(None)
        else:
            machine._detokenizer.load(snapshot["detokenizer"])
    for name in _PLAIN_STATE:
        setattr(machine, name, snapshot[name])
    machine.buffer, machine.position = snapshot["buffer"], 0
    machine._gaps = [list(gap) for gap in snapshot["gaps"]]
    machine._ids.load(snapshot["ids"])
    machine.call = PendingCall.load(snapshot["call"])
    machine.stack, machine._calls = [], None
    for kind, *saved in snapshot["frames"]:
        machine.push(_frame(machine, kind, saved))
    machine.choose_fast_path()


def _frame(machine: Machine, kind: str, saved: list[Any]) -> Frame:
    """A frame, from what it saved and from what stands below it."""
    program, limits = machine._program, machine.limits
    if kind == "scope":
        strand, *rest = saved
        return ScopeFrame(machine.scope().inner[strand] if machine.stack else program.content, *rest)
    if kind == "header":
        assert program.headers is not None
        return HeaderFrame(program.headers, *saved)
    if kind == "again":
        return RepeatedOpenerFrame(machine.scope().again)
    if kind == "quoted":
        return QuotedArgumentsFrame.load(saved, limits)
    if kind == "calls":
        strand, *rest = saved
        return CallsFrame.load(rest, program.calls[strand], machine.scope().calls_markers[strand])
    assert machine._calls is not None
    markers = machine._calls.markers
    if kind == "value":
        return ValueFrame.load(saved, limits, markers)
    if kind == "python":
        return PythonArgumentsFrame.load(saved, markers)
    step = machine._calls.rule.steps[machine._calls.at - 1]
    if kind == "json_call":
        assert isinstance(step, ReadJsonCall)
        return JsonCallFrame.load(saved, step.node, markers)
    if kind == "bare":
        assert isinstance(step, ReadBare)
        return BareArgumentsFrame.load(saved, step.quotes, markers)
    assert isinstance(step, ReadTagged | ReadElements)
    if kind == "argument":
        return ArgumentFrame.load(saved, limits, step.rule.value.ends)
    if kind == "python_argument":
        return PythonArgumentFrame.load(saved, step.rule.value.ends)
    if values := _VALUES.get(kind):
        return values.load(saved, step.rule.value, limits)
    if isinstance(step, ReadElements):
        assert kind == "elements"
        return ElementArgumentsFrame.load(saved, step.rule, markers)
    return _TAGGED[kind].load(saved, step.rule, markers)


_VALUES = {frame.kind: frame for frame in (TaggedValueFrame, EscapedValueFrame, LeafFrame)}
_TAGGED = {frame.kind: frame for frame in (TaggedArgumentsFrame, EscapedArgumentsFrame)}
