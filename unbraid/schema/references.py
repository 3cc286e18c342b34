"""`$ref`: the schema that a local reference (`#/$defs/city`, a JSON pointer) is about.

References to other documents and to anchors are not followed: the request holds one document, and generators write
pointers. A reference may lead to itself; who follows it must see to it that this ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from .keywords import SHOWN
from .types import Schema


def resolve(root: Schema, ref: str) -> tuple[str, Schema]:
    """The place (`.$defs.a`) and the schema that `ref` is about. Raises LookupError, which says what is wrong."""
    if not ref.startswith("#"):
        raise LookupError(f"{ref!r} is not local; copy that schema into `$defs` and refer to `#/$defs/…`")
    pointer = ref[1:]
    if "%" in pointer:
        from urllib.parse import unquote  # which few need

        pointer = unquote(pointer)
    if pointer and not pointer.startswith("/"):
        raise LookupError(f"{ref!r} is an anchor; write it as a path, `#/$defs/…`")
    place, node = "", root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and step in node:
            place, node = f"{place}.{step:.{SHOWN}}", node[step]
        elif isinstance(node, list) and step.isdecimal() and len(step) < 10 and int(step) < len(node):
            place, node = f"{place}[{int(step)}]", node[int(step)]
        else:
            raise LookupError(f"{ref!r} leads nowhere: there is no {step!r} in it")
    if not isinstance(node, bool | Mapping):
        raise LookupError(f"{ref!r} leads to something that is no schema")
    return place, node
