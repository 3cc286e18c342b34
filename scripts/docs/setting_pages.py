"""The page of all settings, made from `unbraid/server/settings.py`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from unbraid.server.settings import GROUPS, Settings

from .markdown import code, table

PATH = "settings.md"
_HEAD = ("flag and variable", "default", "what it does")


def page() -> str:
    parts = [
        "# Settings",
        "Every setting of `unbraid serve`. Each is a flag, an environment variable, or a line of the file that "
        "`--config` names, where it has the name of the flag with `_` for `-`. A flag wins over the environment, and "
        "the environment over the file. [The server](server.md#settings) shows each way, and how several models are "
        "named.",
    ]
    for group, about in GROUPS.items():
        rows = [
            (
                f"{code(flag_of(each.name))}<br>{code(variable_of(each.name))}",
                _default(each.default),
                _help(each.metadata),
            )
            for each in fields(Settings)
            if each.metadata.get("group") == group
        ]
        parts += [f"## {group.capitalize()}", f"{about[0].upper()}{about[1:]}.", table(_HEAD, rows)]
    return "\n\n".join(parts)


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    return f"UNBRAID_{name.upper()}"


def _help(told: Any) -> str:
    help = str(told["help"])
    shown = f"{help[0].upper()}{help[1:]}."
    if told["choices"] is not None:
        shown += " One of " + ", ".join(map(code, told["choices"])) + "."
    if told["kind"] == "list" and "several" not in help:
        shown += " May be given several times."
    return shown.replace("<", "&lt;")


def _default(value: Any) -> str:
    if value in (None, ()) or value is False:
        return "–"
    if value is True:
        return "on"
    several = value if isinstance(value, tuple) else (value,)
    return code(",".join(str(int(one)) if isinstance(one, float) and one.is_integer() else str(one) for one in several))
