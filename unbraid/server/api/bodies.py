"""Request bodies: JSON read into the type of a route, with errors that name the field.

Each route declares the fields that it takes as a `Struct`, in its own module. `read_request` reads a body into one. A
field that is not declared is refused where it would change the
reply or is probably misspelled; otherwise it is logged once and ignored, as clients send fields of other servers.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from inspect import isclass
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct
from starlette.requests import Request

from ..access.content_types import check_json
from ..errors import ApiError
from ..http import read_body
from ..planning.sender import Sender, sender
from .fields import Object

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UndeclaredFields:
    """What a dialect says about fields that its routes do not declare."""

    without_effect: Set[str]
    """Fields that change nothing here."""
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
_MOST_VALUES = 300_000
_LARGE = 100_000
"""A body of more bytes takes milliseconds to read, so a thread does it."""


async def read_request(
    request: Request, kind: type[Body], most: int, undeclared: UndeclaredFields = OPENAI_FIELDS
) -> Body:
    """The body of a request, checked. Raises an `ApiError` that names the field."""
    body = await read_json_body(request, most)
    check_values()
    small = len(body) < _LARGE
    return read(body, kind, undeclared) if small else await asyncio.to_thread(read, body, kind, undeclared)


async def read_json_body(request: Request, most: int) -> bytes:
    """The bytes of a body that says that it is JSON. Raises `ApiError` for any other."""
    check_json(request)
    return await read_body(request, most)


def check_values() -> None:
    """Raises `ApiError` where the body that was read holds so many values that decoding it would hold up others."""
    values = sender.get(Sender()).values
    if values > _MOST_VALUES:
        message = (
            f"the body holds about {values} values (commas and brackets), and {_MOST_VALUES} is the most: send less"
        )
        raise ApiError(413, message)


def read(body: bytes, kind: type[Body], undeclared: UndeclaredFields = OPENAI_FIELDS) -> Body:
    """A body, checked."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ApiError(400, f"the body must be a JSON object, not {_kind(found)}")
    _look_at_unknown(found, kind, undeclared)
    for name, inner in _inner_structs(kind).items():
        value = found.get(name)
        if isinstance(value, dict):
            _look_at_unknown(value, inner, _NOTHING_UNDECLARED, f"{name}.")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error


@cache
def _inner_structs(kind: type[Struct]) -> dict[str, type[Struct]]:
    """The fields of `kind` that hold objects with declared fields. Looked up once: msgspec reads all annotations anew
    each time, which takes longer than all else that is done for a short request."""
    found = {field.name: _struct_in(field.type) for field in msgspec.structs.fields(kind)}
    return {name: inner for name, inner in found.items() if inner is not None}


def _struct_in(type: Any) -> type[Struct] | None:
    """The fields of an object that stands in a field of this type."""
    kinds = [each for each in (type, *get_args(type)) if isclass(each) and issubclass(each, Struct)]
    return kinds[0] if kinds else None


def _look_at_unknown(found: Object, kind: type[Struct], undeclared: UndeclaredFields, prefix: str = "") -> None:
    """Refuse fields that would change the reply, or that are misspelled. Log others, once. `prefix`: the field that
    they stand in."""
    known = kind.__struct_fields__
    passed = undeclared.without_effect
    unknown = [name for name in found if name not in known and name not in passed and found[name] is not None]
    if len(unknown) > _MOST_UNKNOWN:
        raise ApiError(400, f"the request has {len(unknown)} fields that are not known, such as {unknown[0][:64]}")
    for name in unknown:
        if name in undeclared.instead:
            message = f"{name} is not supported: {undeclared.instead[name]}"
            raise ApiError(400, message, param=name, code="unsupported")
        near = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.85)
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


def _invalid(message: str) -> ApiError:
    """msgspec's message with the path in front: `max_tokens: expected int | null, got str`. It gives the path in words
    alone."""
    text, _, path = message.partition(" - at `$")
    path = re.sub(r"\[\.\.\.\]", "", path.rstrip("`")).lstrip(".")
    text = text.replace("`", "")
    missing = re.match(r"Object missing required field (\w+)", text)
    if missing:
        path = f"{path}.{missing[1]}".lstrip(".")
        return ApiError(400, f"{path} is missing: it is required", param=path)
    return ApiError(400, f"{path}: {text[0].lower()}{text[1:]}" if path else text, param=path or None)


def _kind(value: object) -> str:
    names = {str: "a string", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
