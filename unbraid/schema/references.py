"""References inside a document, as pointers from its root.

`$id` gives a part of a schema an address, and `$anchor` a name. References to these lead nowhere outside of the
document, so each becomes what generators write: a JSON pointer (`#/$defs/a`), the only kind that `keywords.resolve`
knows. A `$dynamicRef` leads to the outermost schema of its name on the way to it. Where only one has the name, that is
an ordinary reference; where several do, it is left, and whoever reads it says that it is not enforced. What leads out
of the document is left too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..metering import spend
from .keywords import MANY_SCHEMAS, NAMED_SCHEMAS, ONE_SCHEMA, Schema

ADDRESSES = frozenset({"$id", "$anchor", "$dynamicAnchor", "$dynamicRef"})
"""Keywords that make a difference here."""


def is_pointer(ref: object) -> bool:
    """Whether a reference is a pointer already, or no reference."""
    return not isinstance(ref, str) or ref == "#" or ref.startswith("#/")


def with_pointers(root: Schema) -> Schema:
    """The schema with pointers for all references that stay inside it. What needs no change is the same object."""
    return _References(root).schema(root, "", "") if isinstance(root, Mapping) else root


class _References:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._parts = {"": ""}
        """The pointer to each part that has an address, by that."""
        self._anchors: dict[str, str] = {}
        """The pointer to each schema that has a name, by address and name (`address#name`)."""
        self._dynamic: dict[str, set[str]] = {}
        """The pointers to the schemas of each name that a `$dynamicRef` may lead to."""
        self._collect(root, "", "")

    def _collect(self, node: Any, pointer: str, base: str) -> None:
        if not isinstance(node, Mapping):
            return
        spend()
        base = self._enter(node, base)
        self._parts.setdefault(base, pointer)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(key), str):
                self._anchors.setdefault(f"{base}#{name}", pointer)
        if isinstance(name := node.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, set()).add(pointer)
        if isinstance(name := node.get("$id"), str) and name.startswith("#"):  # an anchor, before draft 2019
            self._anchors.setdefault(base + name, pointer)
        for step, inner in _below(node):
            self._collect(inner, pointer + step, base)

    @staticmethod
    def _enter(node: Mapping[str, Any], base: str) -> str:
        """The address of the part that `node` is in."""
        address = node.get("$id")
        if not isinstance(address, str) or address.startswith("#"):
            return base
        return _joined(base, address).removesuffix("#")

    def schema(self, node: Any, pointer: str, base: str) -> Any:
        if not isinstance(node, Mapping):
            return node
        spend()
        base = self._enter(node, base)
        changed: dict[str, Any] = {}
        if isinstance(ref := node.get("$ref"), str) and (target := self._target(ref, base)) is not None:
            changed["$ref"] = f"#{target}"
        for step, inner in _below(node):
            new = self.schema(inner, pointer + step, base)
            if new is not inner:
                _put(changed, node, step, new)
        changed = {key: value for key, value in changed.items() if value != node[key]}
        result = {**node, **changed} if changed else node
        if isinstance(ref := node.get("$dynamicRef"), str) and (target := self._dynamic_target(ref, base)) is not None:
            rest = {key: value for key, value in result.items() if key != "$dynamicRef"}
            result = {**rest, "allOf": [*rest.get("allOf", ()), {"$ref": f"#{target}"}]}
        return result

    def _target(self, ref: str, base: str) -> str | None:
        """The pointer to what a reference leads to; None if that is not in the document."""
        address, _, fragment = ref.partition("#")
        base = _joined(base, address) if address else base
        if base not in self._parts:
            return None
        if not fragment or fragment.startswith("/"):
            return self._parts[base] + fragment
        return self._anchors.get(f"{base}#{fragment}")

    def _dynamic_target(self, ref: str, base: str) -> str | None:
        """The same for a `$dynamicRef`, if it always leads to the same schema."""
        target = self._target(ref, base)
        named = self._dynamic.get(ref.partition("#")[2], set())
        return target if target not in named or len(named) == 1 else None


def _joined(base: str, address: str) -> str:
    from urllib.parse import urljoin  # which few need

    return urljoin(base, address)


def _below(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The schemas right below, each with the end of its pointer."""
    below: list[tuple[str, Any]] = []
    for key in (*ONE_SCHEMA, *MANY_SCHEMAS):
        value = node.get(key)
        if isinstance(value, list):
            below += [(f"/{key}/{index}", inner) for index, inner in enumerate(value)]
        elif value is not None:
            below.append((f"/{key}", value))
    for key in NAMED_SCHEMAS:
        if isinstance(named := node.get(key), Mapping):
            below += [(f"/{key}/{_escaped(name)}", inner) for name, inner in named.items()]
    return below


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("~", "~0").replace("/", "~1")


def _put(changed: dict[str, Any], node: Mapping[str, Any], step: str, new: Any) -> None:
    """Note a changed schema, which stands at `step` below `node`."""
    _, key, *name = step.split("/")
    if not name:
        changed[key] = new
    elif isinstance(node[key], list):
        changed.setdefault(key, list(node[key]))[int(name[0])] = new
    else:
        whole = name[0].replace("~1", "/").replace("~0", "~").replace("%25", "%")
        changed.setdefault(key, dict(node[key]))[whole] = new
