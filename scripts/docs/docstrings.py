"""A Griffe extension: docstrings of this project, as mkdocstrings reads them.

Here a parameter is a paragraph `name: what it is`, as in prose. mkdocstrings knows Google's `Args:`, which gives each
parameter its type and default. A paragraph is one if its name is a parameter of the function.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_FIRST = re.compile(r"(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*): (?P<text>.+)")


class Parameters(griffe.Extension):
    """Has the parameters of functions and classes in a section of their own."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is not None:
            known = {parameter.name for parameter in func.parameters}
            func.docstring.value = with_section(func.docstring.value, known)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        init = cls.members.get("__init__")
        if cls.docstring is not None and isinstance(init, griffe.Function):
            known = {parameter.name for parameter in init.parameters}
            cls.docstring.value = with_section(cls.docstring.value, known)


def with_section(text: str, known: set[str]) -> str:
    """The docstring, with its parameters below `Args:`. What is no parameter stays where it is."""
    before: list[str] = []
    found: list[str] = []
    inside = False
    for line in text.split("\n"):
        first = _FIRST.match(line)
        names = first["names"].replace("*", "").split(", ") if first is not None else []
        if names and known.issuperset(names):
            assert first is not None
            found += [f"    {name}: {first['text']}" for name in names]
            inside = True
        elif inside and line.startswith("    "):
            found.append("    " + line)
        else:
            inside = False
            before.append(line)
    if not found:
        return text
    return "\n".join([*before, "", "Args:", *found])
