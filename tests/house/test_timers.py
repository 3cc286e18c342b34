"""Timers: each that blames another goes by a clock that does not count what this process lost (`unbraid.patience`).

A timer of asyncio's own counts it. So every place that sets one is in this table, with why it blames nobody, or where
it asks the clock before it does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from .modules import Module, modules

ASKS = "asks the clock when it fires, and waits on if the time is not up"
FAREWELL = "the connection is over: it is cut if the client does not close it"
OWN = "our own work, which is given up when its time is over"

BLAMES_NOBODY: Mapping[str, str] = {
    "unbraid.engines.http.address.stream": "the answer is complete: its connection is kept if the server ends it soon",
    "unbraid.engines.routing.routed._watch_one": "the time from one check to the next",
    "unbraid.patience": "the clock itself, and the timers that ask it",
    "unbraid.server.access.door": FAREWELL,
    "unbraid.server.access.protocol._arm": ASKS,
    "unbraid.server.access.timing.hold": "a pause in reading, to keep a pace",
    "unbraid.server.access.websocket._arm": ASKS,
    "unbraid.server.access.websocket._run": FAREWELL,
    "unbraid.server.access.websocket._end": FAREWELL,
    "unbraid.server.running.run.shutdown": OWN,
    "unbraid.server.service.end_background": OWN,
}
"""Where timers of asyncio's own are set: a module or a function, and why that is right."""

TIMERS = ("call_later", "call_at", "timeout", "timeout_at", "wait_for")


def timers() -> Iterator[tuple[str, str, int]]:
    """Each timer: its module, the function that sets it, its line."""
    for module in modules().values():
        yield from _timers(module, module.tree, "")


def _timers(module: Module, node: ast.AST, function: str) -> Iterator[tuple[str, str, int]]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call) and _sets_timer(child):
            yield module.name, inner, child.lineno
        yield from _timers(module, child, inner)


def _sets_timer(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    of_asyncio = isinstance(call.func.value, ast.Name) and call.func.value.id == "asyncio"
    if of_asyncio and call.func.attr == "wait":
        return any(word.arg == "timeout" for word in call.keywords)
    return call.func.attr in TIMERS[:2] or (of_asyncio and call.func.attr in TIMERS)


def keys(module: str, function: str) -> set[str]:
    return {module, f"{module}.{function}"}


def test_every_timer_asks_how_late_we_are_or_blames_nobody() -> None:
    wrong = [
        f"{module}:{line}: {function} sets a timer"
        for module, function, line in timers()
        if not keys(module, function) & set(BLAMES_NOBODY)
    ]
    assert not wrong, "\n".join(["use `unbraid.patience`, or say in BLAMES_NOBODY whom it blames:", *wrong])


def test_no_timer_is_left_over() -> None:
    used = {key for module, function, _ in timers() for key in keys(module, function)}
    assert sorted(set(BLAMES_NOBODY) - used) == []
