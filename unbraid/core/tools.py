"""The tools of a request, checked and repaired once, before a model runs.

Tools that cannot be used at all (no list, no name, defined twice) raise `InvalidTools`. Mistakes in the schema of their
parameters do not: the schema is read as what was meant, and a `SchemaWarning` says what was changed
(`unbraid.schema.repair`). So everybody who takes a `Tools` finds well-formed schemas in it.
"""

from __future__ import annotations

import copy
import marshal
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..caching import LruCache
from ..errors import InvalidTools, Keys, Place, about
from ..schema.kinds import kinds_of
from .custom_tools import CustomTool, read_custom_tool

if TYPE_CHECKING:
    from ..schema.repair import Repair


_MOST_KINDS, _LONGEST_KEY = 512, 128


class Tools(Mapping[str, Mapping[str, Any]]):
    """Function name to the JSON schema of its parameters.

    Takes what chat APIs take: `{"type": "function", "function": {"name": …, "parameters": …}}`, or the inner part. A
    custom tool (`{"type": "custom", …}`) is a function with one parameter, the string `input`; see `custom`.
    """

    def __init__(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        if isinstance(definitions, str | bytes | Mapping) or not isinstance(definitions, Iterable):
            raise InvalidTools(f"tools must be a list of function definitions, not {type(definitions).__name__}")
        self._parameters: dict[str, Mapping[str, Any]] = {}
        self._kinds: dict[tuple[str, str], frozenset[str]] = {}
        self._strict: set[str] = set()
        self._custom: dict[str, CustomTool] = {}
        self._paths: dict[str, Keys] = {}
        repairs: list[Repair] = []
        for index, definition in enumerate(definitions):
            where, custom = Place("tools", index), None
            with about(where):
                if isinstance(definition, Mapping) and definition.get("type") == "custom":
                    custom = read_custom_tool(definition, where)
                    name, parameters, strict = custom.name, custom.parameters, custom.grammar is not None
                else:
                    name, parameters, strict = _function(where, definition, repairs)
            before = self._parameters.get(name, parameters), _input(self._custom.get(name))
            if name in self._parameters and before != (parameters, _input(custom)):
                raise InvalidTools(where, f": {name!r} is defined twice, with different parameters")
            self._parameters[name] = parameters
            self._paths.setdefault(name, (*where.path, *(("function",) if "function" in definition else ())))
            if custom is not None:
                self._custom[name] = custom
            if strict:
                self._strict.add(name)
        if repairs:
            from ..schema.repair import warn

            warn(repairs)
        self.repairs = tuple(repairs)
        """What was changed in the schemas, so that it could be read."""

    def strict(self, name: str) -> bool:
        """Whether the arguments must follow the schema, or the input its grammar, where the engine can see to it."""
        return name in self._strict

    def custom(self, name: str) -> CustomTool | None:
        """The custom tool of this name; None where it is a function, or no tool at all."""
        return self._custom.get(name)

    def kinds(self, name: str, key: str) -> frozenset[str]:
        """The kinds that an argument of a tool may have. Calls ask alike, so the answers are kept, up to a number."""
        kinds = self._kinds.get((name, key))
        if kinds is None:
            kinds = kinds_of(self.get(name, {}), key)
            if len(self._kinds) < _MOST_KINDS and len(key) < _LONGEST_KEY:
                self._kinds[name, key] = kinds
        return kinds

    def schema_place(self, name: str) -> Place:
        """Where the schema of a tool's parameters stands in the request."""
        return Place(*self._paths[name], "parameters", text=f"tool {name!r}: parameters")

    def copy(self) -> Tools:
        """The same tools, which no longer change with the definitions that they were made of."""
        other = Tools([])
        other._parameters, other._strict = copy.deepcopy(self._parameters), set(self._strict)
        other._custom, other._paths = dict(self._custom), self._paths
        other.repairs = self.repairs
        return other

    def only(self, names: Collection[str]) -> Tools:
        """These of the tools."""
        some = Tools([])
        some._parameters = {name: self._parameters[name] for name in names}
        some._strict = self._strict & set(names)
        some._custom = {name: self._custom[name] for name in names if name in self._custom}
        some._paths = self._paths
        some.repairs = self.repairs
        return some

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


_MOST_KEPT = 64
_LONGEST_KEPT = 1 << 16
_kept: LruCache[bytes, Tools] = LruCache(_MOST_KEPT)


def read_tools(definitions: Iterable[Mapping[str, Any]]) -> Tools:
    """`Tools(definitions)`. To read the tools takes longer than to parse a short reply, and the same ones come with
    many: so what was read lately is kept, by what it says, as long as nothing in it had to be repaired."""
    try:
        said = marshal.dumps(cast(list[Any], definitions), 2)  # of plain lists and dicts, in a microsecond or two
    except ValueError:
        return Tools(definitions)
    tools = _kept.get(said)
    if tools is None:
        tools = Tools(definitions)
        if tools.repairs or len(said) > _LONGEST_KEPT:
            return tools
        # Definitions may change after this, and what is kept may not.
        tools = _kept[said] = Tools(marshal.loads(said))
    return tools


def _input(custom: CustomTool | None) -> object:
    """What a tool takes besides parameters."""
    return None if custom is None else custom.grammar or "text"


def _function(where: Place, definition: object, repairs: list[Repair]) -> tuple[str, Mapping[str, Any], bool]:
    if not isinstance(definition, Mapping):
        raise InvalidTools(where, f" must be an object, not {type(definition).__name__}")
    kind = definition.get("type", "function")
    if kind != "function":
        raise InvalidTools(where, f': only tools of type "function" and "custom" are known, not {kind!r}')
    function = definition
    if "function" in definition:
        function, where = definition["function"], where / "function"
        if not isinstance(function, Mapping):
            raise InvalidTools(where, f" must be an object, not {type(function).__name__}")
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidTools(where, " has no name: give it a non-empty string", field=where / "name")
    named = Place(*where.path, text=f"{where} ({name!r})")
    strict = function.get("strict")
    if strict not in (None, True, False):
        raise InvalidTools(where, f" ({name!r}).strict must be true or false, not {strict!r}", field=where / "strict")
    with about(named / "parameters"):
        return name, _parameters(function.get("parameters"), named / "parameters", repairs), bool(strict)


def _parameters(parameters: object, where: str, repairs: list[Repair]) -> Mapping[str, Any]:
    """The schema of all arguments together, which are always one object."""
    from ..schema.keywords import read_type
    from ..schema.repair import Repair, repair  # loaded with the first tool, so that importing stays fast

    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        repairs.append(Repair(where, f"must be a JSON schema of an object, not {parameters!r:.40}; read as any object"))
        return {}
    types = read_type(parameters.get("type"))
    if types is not None and types != ["object"]:
        said = f"{parameters['type']!r:.40}"
        repairs.append(Repair(f"{where}.type", f'arguments are always an object, not {said}; read as "object"'))
        parameters = {**parameters, "type": "object"}
    repaired, more = repair(parameters, where)
    repairs += more
    assert isinstance(repaired, Mapping), "only booleans become booleans"
    return repaired
