"""Request bodies: JSON read into the type of a route, with errors that name the field.

Each route declares the fields that it takes as a `Struct`, in its own module. `read_and_plan` reads a body into one,
and has it worked out. A field that is not declared is refused where it would change the reply or is probably
misspelled; otherwise it is logged once and ignored, as clients send fields of other servers.

The interpreter does nothing else while it decodes JSON, in a thread or not. So a large body goes to a worker process as
the bytes that came, and what comes back is the plan, without what it was made of.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping, Set
from copy import copy
from dataclasses import dataclass
from functools import cache
from inspect import isclass
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Raw, Struct
from starlette.requests import Request

from ...caching import LruCache
from ...errors import OverBudget
from ..errors import ApiError
from ..http import check_json, read_body, while_connected
from ..model import Model, Served, chosen
from ..planning.planner import LARGE
from ..service import Service
from .fields import Object, RequestFields

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UndeclaredFields:
    """What a dialect says about fields that its routes do not declare."""

    without_effect: Set[str]
    """Fields of the dialect that are accepted and have no effect."""
    instead: Mapping[str, str]
    """Fields that would change the reply, and what to do instead."""

    def other_than(self, response_format: str) -> dict[str, str]:
        """`instead`, for a dialect that calls `response_format` otherwise."""
        return {name: what.replace("`response_format`", response_format) for name, what in self.instead.items()}


# Of OpenAI, and of other servers.
_WITHOUT_EFFECT = {
    *("store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prediction"),
    *(
        "verbosity",
        "request_id",
        "priority",
        "cache_salt",
        "stream_reasoning",
        "skip_special_tokens",
        "spaces_between_special_tokens",
    ),
}
_INSTEAD = {
    "functions": "give `tools`",
    "function_call": "give `tool_choice`",
    "audio": "give `tts_output: true`; the voice is the model's",
    "web_search_options": "give a tool that searches",
    "chat_template": "start the server with --chat-template",
    "guided_json": "give `response_format` with a JSON schema",
    "guided_regex": "give `response_format` with a JSON schema",
    "guided_choice": "give `response_format` with a JSON schema that has an enum",
    "guided_grammar": "give `response_format` with a JSON schema",
    "structured_outputs": "give `response_format` with a JSON schema",
    "structural_tag": "give `tools`; their calls are constrained by the format's grammar",
    "best_of": "give `n`, and choose",
    "use_beam_search": "leave it out: there is no beam search here",
    "suffix": "leave it out: there is no filling-in here",
    "min_tokens": "leave it out: a model ends when it ends",
    "ignore_eos": "leave it out: a model ends when it ends",
}

OPENAI_FIELDS = UndeclaredFields(_WITHOUT_EFFECT, _INSTEAD)
_NOTHING_UNDECLARED = UndeclaredFields(frozenset(), {})

Body = TypeVar("Body", bound=Struct)
Asked = TypeVar("Asked", bound=RequestFields)
T = TypeVar("T")
MOST_VALUES = 300_000
"""The most JSON values that a body may have. A body that a worker process has read is unpacked in the event loop, which
delays other requests."""


async def read_and_plan(
    service: Service,
    request: Request,
    kind: type[Asked],
    plan: Callable[[Model, Asked], T],
    undeclared: UndeclaredFields = OPENAI_FIELDS,
) -> tuple[Asked, Served, T]:
    """The body of a request, checked; the model that it asks for; and what `plan` makes of the two.

    Of a large body, the fields that `kind.PLANNED` names are empty then: they stay where the plan was made. Raises an
    `ApiError` that names the field.
    """
    body = await read_json_body(request, service.max_body, MOST_VALUES)
    if len(body) <= LARGE:
        fields = read_known(body, kind, undeclared)
        served = service.served(fields.model)
        try:
            return fields, served, service.planner.at_once(plan, served.current(), fields)
        except OverBudget:
            pass
        work = service.planner.apart(plan, (served.current(), fields), {})
        return fields, served, await while_connected(request.receive, work)
    models = service.models  # those for which it is planned: they may change meanwhile
    both = service.planned(_read_and_plan, service.models_by_name(), body, kind, plan, undeclared)
    fields, planned = await while_connected(request.receive, both)
    return fields, service.served(fields.model, models), planned


def _read_and_plan(
    models: Mapping[str, Model],
    body: bytes,
    kind: type[Asked],
    plan: Callable[[Model, Asked], T],
    undeclared: UndeclaredFields,
) -> tuple[Asked, T]:
    request = read(body, kind, undeclared)
    planned = plan(chosen(models, request.model), request)
    for name in kind.PLANNED:
        value = getattr(request, name)
        setattr(request, name, None if value is None else type(value)())
    return request, planned


async def read_request(
    service: Service, request: Request, kind: type[Body], undeclared: UndeclaredFields = OPENAI_FIELDS
) -> Body:
    """The body of a request, checked, where there is more to do than to plan it. Raises an `ApiError` that names the
    field."""
    body = await read_json_body(request, service.max_body, MOST_VALUES)
    if len(body) <= LARGE:
        return read(body, kind, undeclared)
    return await while_connected(request.receive, service.planned(read, body, kind, undeclared))


async def read_json_body(request: Request, most: int, most_values: int | None = None) -> bytes:
    """The bytes of a body that says that it is JSON. Raises `ApiError` for any other."""
    check_json(request)
    return await read_body(request, most, most_values)


def read_known(body: bytes, kind: type[Asked], undeclared: UndeclaredFields) -> Asked:
    """A body, checked. Applications send much the same with each request, so the fields of the last ones are kept, but
    for `kind.VARIES`: then only that is read. The others are shared, and must not be changed."""
    varies = kind.VARIES
    try:
        parts = _parts.decode(body) if varies else {}
        part = parts.pop(varies)
    except (*_NOT_JSON, KeyError):
        return read(body, kind, undeclared)
    if len(body) - len(part) > _MOST_KEPT:
        return read(body, kind, undeclared)
    key = kind, *[(name, bytes(value)) for name, value in parts.items()]
    like = _known.get(key)
    if like is not None:
        try:
            value = _decoder(kind).decode(part)
        except _NOT_JSON:
            return read(body, kind, undeclared)
        fields: Asked = _with(like, value)
        return fields
    fields = read(body, kind, undeclared)
    _known[key] = like = _with(fields, None)
    return _with(like, getattr(fields, varies))


def _with(fields: Asked, value: Any) -> Asked:
    """The same fields with another value in the one that varies."""
    other = copy(fields)
    setattr(other, fields.VARIES, value)
    vars(other)["kept"] = fields.kept
    return other


_NOT_JSON = msgspec.DecodeError, RecursionError, UnicodeDecodeError
_parts = msgspec.json.Decoder(dict[str, Raw])
_known: LruCache[tuple[Any, ...], Any] = LruCache(64)
"""By the kind of request, and by the names and bytes of its fields."""
_MOST_KEPT = 64_000
"""Fields of more bytes are read each time."""


@cache
def _decoder(kind: type[RequestFields]) -> msgspec.json.Decoder[Any]:
    """Reads the field that varies."""
    return msgspec.json.Decoder(get_type_hints(kind, include_extras=True)[kind.VARIES])


def read(body: bytes, kind: type[Body], undeclared: UndeclaredFields = OPENAI_FIELDS) -> Body:
    """A body, checked."""
    try:
        fields = msgspec.json.decode(body)
    except _NOT_JSON as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ApiError(400, f"the body must be a JSON object, not {_kind(fields)}")
    _look_at_unknown(fields, kind, undeclared)
    for name, inner in _inner_structs(kind).items():
        value = fields.get(name)
        if isinstance(value, dict):
            _look_at_unknown(value, inner, _NOTHING_UNDECLARED, f"{name}.")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error


@cache
def _inner_structs(kind: type[Struct]) -> dict[str, type[Struct]]:
    """The fields of `kind` that hold objects with declared fields. Looked up once: msgspec reads all annotations anew
    each time, which takes longer than all else that is done for a short request."""
    structs = {field.name: _struct_in(field.type) for field in msgspec.structs.fields(kind)}
    return {name: inner for name, inner in structs.items() if inner is not None}


def _struct_in(type: Any) -> type[Struct] | None:
    """The fields of an object that stands in a field of this type."""
    kinds = [each for each in (type, *get_args(type)) if isclass(each) and issubclass(each, Struct)]
    return kinds[0] if kinds else None


def _look_at_unknown(fields: Object, kind: type[Struct], undeclared: UndeclaredFields, prefix: str = "") -> None:
    """Refuse fields that would change the reply, or that are misspelled. Log others, once. `prefix`: the field that
    they stand in."""
    declared = kind.__struct_fields__
    passed = undeclared.without_effect
    unknown = [name for name in fields if name not in declared and name not in passed and fields[name] is not None]
    if len(unknown) > _MOST_UNKNOWN:
        raise ApiError(400, f"the request has {len(unknown)} fields that are not known, such as {unknown[0][:64]}")
    for name in unknown:
        if name in undeclared.instead:
            message = f"{name} is not supported: {undeclared.instead[name]}"
            raise ApiError(400, message, param=name, code="unsupported")
        near = difflib.get_close_matches(name[:64], declared, n=1, cutoff=0.85)
        name = prefix + name
        if near:
            message = f"{name} is no field of this request: did you mean {prefix}{near[0]}?"
            raise ApiError(400, message, param=name)
        if name not in _told and len(_told) < _MOST_TOLD:
            _told.add(name)
            _log.warning("requests have a field %.64r that is not known here; it has no effect", name)


_MOST_TOLD = 100
_MOST_UNKNOWN = 50
_told: set[str] = set()


def invalid(message: str) -> ApiError:
    """msgspec's message with the path in front: `max_tokens: expected int | null, got str`. msgspec gives the path in
    words alone, after all else: before it, the client may be quoted."""
    text, at, path = message.rpartition(" - at `$")
    text, path = (text, path) if at else (message, "")
    path = path.rstrip("`").replace("[...]", "").lstrip(".")
    text = text.replace("`", "")
    missing = text.removeprefix("Object missing required field ")
    if missing != text:
        path = f"{path}.{missing}".lstrip(".")
        return ApiError(400, f"{path} is missing: it is required", param=path)
    return ApiError(400, f"{path}: {text[0].lower()}{text[1:]}" if path else text, param=path or None)


def _kind(value: object) -> str:
    names = {str: "a string", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
