"""Where settings come from: flags, environment variables, a file in TOML. The settings themselves are in `settings`.

A flag wins over the environment, and the environment over the file. `--served-model-name a --served-model-name b` is
`UNBRAID_SERVED_MODEL_NAME=a,b` in the environment and `served_model_name = ["a", "b"]` in the file. msgspec checks each
value against the type of its field; an error names the flag, the variable or the key, and what to write.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from ..errors import UnbraidError
from .settings import GROUPS, OF_A_MODEL, SETTINGS, Setting, Settings, check_settings

_CONFIG = "UNBRAID_CONFIG"
_NEVER_EMPTY = ("api_key",)
"""Settings for which an empty variable is a value. Elsewhere it means that the setting is not given."""
_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
"""Values of a switch, beside those that msgspec takes: true, false, 1 and 0."""
_WORDS = {bool: "true or false", str: "a text", tuple[str, ...]: "a text or a list of texts"}
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:/-]*)=(?P<rest>.+)", re.DOTALL)


def add_flags(command: argparse.ArgumentParser) -> None:
    """Flags for all settings. They have no defaults here: `read_settings` fills them in."""
    command.add_argument("--config", metavar="FILE", help='a TOML file with the same settings (model = "…")')
    groups = {name: command.add_argument_group(name, declared.__doc__) for name, declared in GROUPS.items()}
    for each in SETTINGS:
        options: dict[str, Any] = {"help": _help(each), "default": None}
        if each.type is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif each.choices:
            options["choices"] = each.choices
        else:
            options["metavar"] = each.metavar or {int: "N", float: "S"}.get(each.type)
        if each.is_list or each.name == "model":
            options["action"] = "append"
        groups[each.group].add_argument(each.flag, **options)


def _help(setting: Setting) -> str:
    help, default = setting.help.replace("%", "%%"), setting.default
    if default in (None, ()) or default is False:
        return help
    shown = ",".join(f"{one:g}" for one in default) if setting.is_pair else str(default)
    return f"{help} (default: {shown})"


def read_settings(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of flags, environment and file together."""
    return _read(vars(arguments), environment)


def settings_of(values: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """The same without a command line: settings by name in place of flags, with values as in a file. A list may be a
    text with commas."""
    names = {each.name: each for each in SETTINGS}
    flags: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in names and name != "config":
            raise UnbraidError(f"there is no setting {key!r}: see `unbraid serve --help`")
        if isinstance(value, str) and name == "model":
            value = [value]
        elif isinstance(value, str) and name in names and names[name].is_list:
            value = _split(value)
        flags[name] = value
    return _read(flags, environment)


def _read(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    path = flags.get("config") or environment.get(_CONFIG)
    file = _read_file(path) if path else {}
    values: dict[str, Any] = {}
    for each in SETTINGS:
        value, where = flags.get(each.name), each.flag
        if value is None and (environment.get(each.variable) or each.name in _NEVER_EMPTY):
            value, where = environment.get(each.variable), each.variable
            if value is not None and each.is_list:
                value = _split(value)
        if value is None:
            value, where = file.get(each.name), f"{each.name} in {path}"
        if value is not None:
            values[each.name] = _checked(value, each, where)
    settings = Settings(**(values | _several(flags, environment, file, path)))
    check_settings(settings)
    return settings


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _read_file(path: str) -> dict[str, Any]:
    try:
        file = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UnbraidError(f"the configuration {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UnbraidError(f"the configuration {path} is no TOML: {error}") from error
    values = {name.replace("-", "_"): value for name, value in file.items()}
    unknown = sorted(values.keys() - {each.name for each in SETTINGS} - {"models"})
    if unknown:
        raise UnbraidError(f"{path} has a setting {unknown[0]!r}, and there is none: see `unbraid serve --help`")
    return values


# Several models


def _several(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Mapping[str, Any], path: str | None
) -> dict[str, Any]:
    """The field `models`, if the settings name several models or give one a name."""
    variable = environment.get("UNBRAID_MODEL")
    specs: Sequence[str] = flags.get("model") or ([variable] if variable else [])
    if specs and (len(specs) > 1 or _is_named(specs[0])):
        if not all(map(_is_named, specs)):
            raise UnbraidError("several models need a name each: --model NAME=MODEL, --model NAME=vllm=URL and so on")
        tables = [_table(spec) for spec in specs]
    elif not specs and "models" in file:
        tables = [_file_table(table, path) for table in file["models"]]
    else:
        return {}
    names = [name for name, _ in tables]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnbraidError(f"two models have the name {twice!r}: give each its own")
    return {"model": None, "models": tuple((name, _own(name, table)) for name, table in tables)}


def _is_named(spec: str) -> bool:
    return _NAMED.fullmatch(spec) is not None and not Path(spec).exists()


def _table(spec: str) -> tuple[str, dict[str, Any]]:
    """`NAME=MODEL,SETTING=VALUE,…`: the name, and the settings. One that is given several times is a list."""
    match = _NAMED.fullmatch(spec)
    assert match is not None
    own: dict[str, list[str]] = {}
    last = "model"
    for at, part in enumerate(match["rest"].split(",")):
        name, equals, value = part.partition("=")
        key = name.strip().replace("-", "_")
        if equals and key.isidentifier() and "/" not in name:
            own.setdefault(key, []).append(value)
            last = key
        elif at == 0:
            own["model"] = [part]
        else:  # a comma inside a value
            own[last][-1] += f",{part}"
    return match["name"], {key: values if len(values) > 1 else values[0] for key, values in own.items()}


def _file_table(table: Any, path: str | None) -> tuple[str, dict[str, Any]]:
    own = {key.replace("-", "_"): value for key, value in table.items()} if isinstance(table, dict) else {}
    name = own.pop("name", None)
    if not isinstance(name, str) or not name:
        raise UnbraidError(f"each of the [[models]] in {path} needs a name, which is what clients call it")
    return name, own


def _own(model: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that one of several models has for itself, checked."""
    allowed = {each.name: each for each in SETTINGS if each.group in OF_A_MODEL}
    unknown = next((key for key in table if key not in allowed), None)
    if unknown is not None:
        raise UnbraidError(f"the model {model!r} has a setting {unknown!r}, and there are {', '.join(allowed)}")
    return {key: _checked(value, allowed[key], f"{key} of the model {model!r}") for key, value in table.items()}


# Values


def _checked(value: Any, setting: Setting, where: str) -> Any:
    """A value as its field has it. Raises `UnbraidError` for one that the field cannot have."""
    try:
        import msgspec  # here, as `unbraid serve --help` needs no package
    except ImportError as error:
        raise UnbraidError(f"the server is not installed ({error}): pip install 'unbraid[server]'") from error
    bounds: dict[str, Any] = {"ge": setting.least} if setting.above is None else {"gt": setting.above}
    if setting.most is not None or setting.type is not int:  # no clock takes infinity
        bounds["le"] = sys.float_info.max if setting.most is None else setting.most
    number = msgspec.Meta(**bounds)
    types: dict[Any, Any] = {
        int: Annotated[int, number],
        float: Annotated[float, number],
        tuple[float, float]: tuple[Annotated[float, number], Annotated[float, number]],
    }
    try:
        return msgspec.convert(_plain(value, setting), types.get(setting.type, setting.type), strict=False)
    except msgspec.ValidationError:
        raise UnbraidError(f"{where} must be {_expected(setting)}, not {value!r}") from None


def _plain(value: Any, setting: Setting) -> Any:
    """A value as msgspec takes it: lists as lists, numbers without spaces, texts as texts."""
    if setting.name == "model" and isinstance(value, list):
        return value[-1]
    if setting.is_list:
        return [str(one) for one in value] if isinstance(value, list | tuple) else [value]
    if setting.is_pair:
        parts = _split(value) if isinstance(value, str) else value if isinstance(value, list) else [value]
        return parts * 2 if len(parts) == 1 else parts
    if setting.type is bool:
        return _SWITCHES.get(str(value).lower(), value)
    if setting.type is str:  # a file may have a number for it
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    return value.strip() if isinstance(value, str) else value


def _expected(setting: Setting) -> str:
    """What a value must be, in words."""
    if setting.choices:
        return f"one of {', '.join(setting.choices)}"
    if setting.type in _WORDS:
        return _WORDS[setting.type]
    number = {int: "a whole number", float: "a number"}.get(setting.type, "one number or two, separated by a comma,")
    if setting.above is not None:
        return f"{number} above {setting.above:g}"
    if setting.most is not None:
        return f"{number} from {setting.least:g} to {setting.most:g}"
    return f"{number} of at least {setting.least:g}"
