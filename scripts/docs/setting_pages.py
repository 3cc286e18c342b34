"""The page of all settings, made from `unbraid/server/settings.py`."""

from __future__ import annotations

from typing import Any

from unbraid.server.settings import GROUPS, SETTINGS, Setting

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
    for group, declared in GROUPS.items():
        about = declared.__doc__ or ""
        rows = [
            (f"{code(each.flag)}<br>{code(each.variable)}", _default(each.default), _help(each))
            for each in SETTINGS
            if each.group == group
        ]
        parts += [f"## {group.capitalize()}", f"{about[0].upper()}{about[1:]}.", table(_HEAD, rows)]
    return "\n\n".join(parts)


def _help(setting: Setting) -> str:
    shown = f"{setting.help[0].upper()}{setting.help[1:]}."
    if setting.choices:
        shown += " One of " + ", ".join(map(code, setting.choices)) + "."
    if setting.is_list and "several" not in setting.help:
        shown += " May be given several times."
    return shown.replace("<", "&lt;")


def _default(value: Any) -> str:
    if value in (None, ()) or value is False:
        return "–"
    if value is True:
        return "on"
    several = value if isinstance(value, tuple) else (value,)
    return code(",".join(str(int(one)) if isinstance(one, float) and one.is_integer() else str(one) for one in several))
