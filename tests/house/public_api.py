"""What is public, as a record: every public name with the parameters that it takes.

    "Parser.feed": [["text", "positional or keyword", true]]

The record of the last release stands in `public_api.json`. A name that is gone, a parameter that is gone, moved or must
be given now, is a break. What is new is none. docs/upgrading.md has the policy.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import unbraid
from unbraid import all_formats
from unbraid.cli import all_commands
from unbraid.server.settings import Settings

from ..support.places import ROOT

RECORD = ROOT / "tests" / "house" / "public_api.json"
Parameters = list[list[Any]]
"""Name, kind and whether it must be given, of each parameter."""
Api = dict[str, Parameters | None]
"""Public names; None for what takes no parameters."""
_BREAKING = re.compile(r"^### Breaking\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_UNRELEASED = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def public_api() -> Api:
    """What is public now."""
    return dict(sorted([*_python(), *_diagnostics(), *_command_line(), *_settings(), *_formats()]))


def _python() -> Iterator[tuple[str, Parameters | None]]:
    for name in unbraid.__all__:
        value = getattr(unbraid, name)
        yield name, _parameters(value)
        if inspect.isclass(value):
            for member in sorted(_members(value)):
                yield f"{name}.{member}", _parameters(getattr(value, member, None))


def _members(kind: type) -> set[str]:
    """What a class itself has, and its bases of unbraid."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("unbraid")]
    names = {name for base in own for name in (*vars(base), *getattr(base, "__annotations__", ()))}
    return {name for name in names if not name.startswith("_")}


def _parameters(value: object) -> Parameters | None:
    if not callable(value):
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # built in, or a type of types
        return None
    return [
        [each.name, each.kind.description, each.default is each.empty and each.kind not in _ANY_NUMBER]
        for each in signature.parameters.values()
        if each.name != "self" and not each.name.startswith("_")
    ]


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _diagnostics() -> Iterator[tuple[str, None]]:
    for name, value in vars(unbraid.diagnostics).items():
        if name.isupper() and isinstance(value, str):
            yield f"diagnostic {value}", None


def _command_line() -> Iterator[tuple[str, None]]:
    for command, (_, parser) in all_commands().items():
        yield f"unbraid {command}", None
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                yield from ((f"unbraid {command} {option}", None) for option in action.option_strings)


def _settings() -> Iterator[tuple[str, None]]:
    yield from ((f"setting {each.name}", None) for each in fields(Settings) if each.metadata)


def _formats() -> Iterator[tuple[str, None]]:
    for format, names in all_formats().items():
        yield from ((f"format {name}", None) for name in (format.name, *names))


def breaks(before: Api, after: Api) -> dict[str, str]:
    """What broke, by name, in words."""
    problems = {name: _break(before[name], after[name]) for name in before if name in after}
    problems |= {name: "it is gone" for name in before if name not in after}
    return {name: problem for name, problem in sorted(problems.items()) if problem}


def _break(before: Parameters | None, after: Parameters | None) -> str:
    if before is None or after is None:
        return "" if before is None else "it takes no parameters any more"
    now = {name: (kind, required) for name, kind, required in after}
    for name, kind, required in before:
        if name not in now:
            return f"its parameter {name!r} is gone"
        if now[name][0] != kind:
            return f"its parameter {name!r} is {now[name][0]}, and was {kind}"
        if now[name][1] and not required:
            return f"its parameter {name!r} must be given now"
    new = [name for name, _, required in after if required and name not in {each[0] for each in before}]
    if new:
        return f"its new parameter {new[0]!r} must be given"
    places = [_positional(before), _positional(after)]
    return "" if places[0] == places[1][: len(places[0])] else "its parameters stand in another order"


def _positional(parameters: Parameters) -> list[str]:
    return [name for name, kind, _ in parameters if kind.startswith("positional")]


def announced(name: str, changelog: str) -> bool:
    """Whether the changelog's next release names a break."""
    unreleased = _UNRELEASED.search(changelog)
    breaking = _BREAKING.search(unreleased[1]) if unreleased else None
    words = (name, name.rpartition(" ")[2], f"unbraid.{name}")
    return breaking is not None and any(f"`{word}`" in breaking[1] for word in words)


def recorded() -> Api:
    """The record of the last release."""
    record: Api = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def unannounced() -> dict[str, str]:
    """Breaks since the last release that the changelog does not name."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    problems = breaks(recorded(), public_api())
    return {name: problem for name, problem in problems.items() if not announced(name, changelog)}
