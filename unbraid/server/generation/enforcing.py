"""Which schemas are enforced, and what is told of those that are not.

Wherever a grammar is in force, the calls in it follow the schemas of their tools, as vLLM and SGLang have it for calls
that are required. `"strict": false` leaves a tool's arguments free: any JSON object. Where a tool says neither, its
schema is followed if it can be; one that is broken or too complex for the engine leaves the arguments free again.

What a schema asks and the engine's syntax cannot say comes with the reply, in the header `X-Unbraid-Unenforced`. For a
tool or an answer with `"strict": true` that is not enough: such a request is refused, unless the server runs with
`--loose-schemas`. The grammar of a custom tool is enforced where it can be, and otherwise told of in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...constraints import Constraint, Unenforced, constraint
from ...core.grammar import Format
from ...core.tools import Tools
from ...errors import InvalidSchema, InvalidTools, Place, Renaming
from ..model import Model

HEADER = "X-Unbraid-Unenforced"
_LONGEST = 1000
"""Servers and proxies limit the size of all headers together."""
Definition = Mapping[str, Any]


def enforced(
    model: Model,
    format: Format,
    *,
    tools: Sequence[Definition],
    tool_choice: str | Mapping[str, Any] | None,
    parallel_tool_calls: bool | None,
    reasoning: bool | None,
    response_format: Mapping[str, Any] | None,
    prompt: str | Sequence[int],
) -> tuple[Constraint, tuple[Unenforced, ...]]:
    """The constraint that a request asks for, and what of it is not enforced. Raises `InvalidSchema` where that must
    be."""

    def make(definitions: Sequence[Definition], choice: str | Mapping[str, Any] | None = tool_choice) -> Constraint:
        return constraint(
            format,
            tools=list(definitions),
            tool_choice=choice,
            parallel_tool_calls=parallel_tool_calls,
            reasoning=reasoning,
            response_format=response_format,
            vocabulary=model.vocabulary,
            prompt=prompt,
        )

    def problem(*arguments: Any) -> str | None:
        """Why the engine cannot enforce these, if that is so."""
        try:
            tried = make(*arguments)
        except (InvalidSchema, InvalidTools) as error:
            return str(error)
        where = tried.llama_cpp.printed.too_ambiguous if model.syntax == "gbnf" else None
        return None if where is None else f"{where} is too complex"

    followed = [_followed(definition) for definition in tools]
    notes: list[Unenforced] = []
    if followed != list(tools) and problem(followed) is not None:
        for at, (whole, own) in enumerate(zip(followed, tools, strict=True)):
            why = None if whole is own else problem([whole], "required")
            if why is not None:
                followed[at] = own
                notes.append(Unenforced(f"tool {_function(own).get('name')!r}", f"its schema is not enforced: {why}"))
        if problem(followed) is not None:
            followed = list(tools)
            notes = [
                Unenforced("tools", "schemas are not enforced but for strict tools: together they are too complex")
            ]
    enforcing = make(followed)
    if model.syntax is not None:  # printed now: the engine asks for it later, where nothing may take long
        printed = enforcing.llama_cpp.printed if model.syntax == "gbnf" else enforcing.printed(model.syntax)
        notes += [*enforcing.language.unenforced, *printed.unenforced]
    unenforced = tuple(dict.fromkeys(notes))
    if unenforced and not model.loose_schemas:
        _refuse(unenforced, tools, response_format)
    return enforcing, unenforced


def rest_of(model: Model, whole: Constraint, begun: str | Sequence[int]) -> Constraint:
    """The constraint for the rest of a turn that has begun. Raises `NotContinued` where there is none."""
    rest = whole.after(begun)
    if model.syntax == "gbnf":
        _ = rest.llama_cpp
    elif model.syntax is not None:
        rest.printed(model.syntax)
    return rest


def naming_the_part(tools: Sequence[Definition]) -> Renaming:
    """Errors about a part of a schema name its place in the request."""
    return Renaming(lambda place: place_of(place, tools) if isinstance(place, Place) and not place.path else place)


def place_of(where: str, tools: Sequence[Definition]) -> Place:
    """The place of a part of a schema. Constraints know tools by their names: `tool 'f': parameters.x` is the path
    `tools[0].function.parameters.x`."""
    for at, definition in enumerate(tools):
        tool = _tool_place(at, definition)
        name = _function(definition).get("name")
        for beginning in (f"tool {name!r}: ", f"{tool} ({name!r})."):
            if where.startswith(beginning):
                return Place(*tool.path, *where.removeprefix(beginning).split("."), text=where)
    return Place(*where.split("."), text=where)


def _tool_place(at: int, definition: Definition) -> Place:
    return Place("tools", at, "function") if "function" in definition else Place("tools", at)


def left_free(model: Model, tools: Tools) -> tuple[Unenforced, ...]:
    """What is not enforced of optional calls where the engine takes no constraints. Raises `InvalidSchema` for tools
    that are strict, as above."""
    strict = [at for at, name in enumerate(tools) if tools.strict(name) and tools.custom(name) is None]
    if strict and not model.loose_schemas:
        raise InvalidSchema(
            Place("tools", strict[0]),
            " is strict, and the engine takes no constraints: leave `strict` out, or start the server with "
            "--loose-schemas",
        )
    return (Unenforced("tools", "the engine takes no constraints"),)


def unenforced_header(unenforced: Iterable[Unenforced]) -> dict[str, str]:
    """The header that tells what is not enforced; none where all is."""
    texts = [f"{each.where}: {each.what}" for each in unenforced]
    if not texts:
        return {}
    # Names in a schema may be anything, and a header must be ASCII on one line.
    shown = [json.dumps(text)[1:-1].replace('\\"', '"') for text in texts]
    kept = shown[:1]
    for text in shown[1:]:
        if len("; ".join([*kept, text])) > _LONGEST:
            break
        kept.append(text)
    left = len(shown) - len(kept)
    return {HEADER: "; ".join(kept)[:_LONGEST] + (f"; and {left} more" if left else "")}


def _function(definition: Definition) -> Mapping[str, Any]:
    function = definition.get("function", definition)
    return function if isinstance(function, Mapping) else {}


def _followed(definition: Definition) -> Definition:
    """A tool, with a schema that is followed unless the client says that it need not be."""
    function = _function(definition)
    if function.get("strict") is not None or function.get("parameters") is None:
        return definition
    whole = {**function, "strict": True}
    return {**definition, "function": whole} if "function" in definition else whole


def _refuse(unenforced: Iterable[Unenforced], tools: Sequence[Definition], response_format: Any) -> None:
    """Refuse what a strict tool or a strict answer asks for, and does not get."""
    checked = Tools(tools)
    # The grammar of a custom tool is reported only: nobody said that it is strict.
    strict = {name: checked[name] for name in checked if checked.strict(name) and checked.custom(name) is None}
    answer = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    answer_is_strict = isinstance(answer, Mapping) and answer.get("strict") is True
    for each in unenforced:
        where, schema = place_of(each.where, tools), None
        match where.path:
            case ["response_format", *_] if answer_is_strict:
                schema = Place("response_format", "json_schema", "schema")
            case ["tools", int(at), *_]:
                # Tools with the same parameters share them in the grammar, under the name of one.
                if checked[str(_function(tools[at]).get("name"))] in strict.values():
                    schema = _tool_place(at, tools[at]) / "parameters"
        if schema is not None:
            instead = "change the schema, leave `strict` out, or start the server with --loose-schemas"
            raise InvalidSchema(where, f": {each.what}, and it is strict: {instead}", field=schema)
