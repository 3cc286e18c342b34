"""The bodies of requests: what fields there are, of what type and within what bounds."""

from __future__ import annotations

import asyncio
import difflib
import logging
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from ..errors import ApiError
from ..http import read_body

_log = logging.getLogger(__name__)

Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Count = Annotated[int, Meta(ge=1)]
Choices = Annotated[int, Meta(ge=1, le=128)]
Top = Annotated[int, Meta(ge=0, le=20)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Object = dict[str, Any]


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class Generated(Struct, kw_only=True):
    """What all requests have in common that let a model write. `null` always means: as if it were not there."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Choices | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    seed: Seed | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: int | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]] | None = None
    max_tokens: Count | None = None
    response_format: Object | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


class ChatRequest(Generated, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Object], Meta(max_length=20_000)]
    tools: Annotated[list[Object], Meta(max_length=512)] | None = None
    tool_choice: str | Object | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    reasoning_effort: str | None = None
    separate_reasoning: bool | None = None
    include_reasoning: bool | None = None
    chat_template_kwargs: Object | None = None
    documents: list[Object] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tts_output: bool | None = None
    modalities: list[Literal["text", "audio"]] | None = None


class CompletionRequest(Generated, kw_only=True):
    """The body of `POST /v1/completions`."""

    prompt: str | list[str | int | list[int]]
    """A text, the ids of its tokens, or several of either."""
    echo: bool | None = None
    logprobs: Top | None = None


class ParseRequest(Struct, kw_only=True):
    """The body of `POST /v1/parse`: raw output as `text` or as `ids`."""

    text: str | None = None
    ids: list[int] | None = None
    format: str | None = None
    prompt: str | list[int] | None = None
    tools: list[Object] | None = None
    unknown_tools: Literal["text", "emit"] | None = None
    separate_reasoning: bool | None = None


class TokenizeRequest(Struct, kw_only=True):
    """The body of `POST /v1/tokenize`: a `prompt`, in which control tokens are recognised, or what a chat has."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Object] | None = None
    tools: list[Object] | None = None
    documents: list[Object] | None = None
    chat_template_kwargs: Object | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tts_output: bool | None = None
    return_token_strs: bool | None = None


# Fields of other servers, or of OpenAI's, that change nothing of what a client gets from this one.
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
# Those that would, and what to do instead.
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

Body = TypeVar("Body", bound=Struct)
_LARGE = 100_000
"""A body of more bytes takes milliseconds to read."""


async def read_request(request: Request, kind: type[Body], most: int) -> Body:
    """The body of a request, checked. Raises `ApiError` that names the field."""
    body = await read_body(request, most)
    return read(body, kind) if len(body) < _LARGE else await asyncio.to_thread(read, body, kind)


def read(body: bytes, kind: type[Body]) -> Body:
    """A body, checked."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ApiError(400, f"the body must be a JSON object, not {_kind(found)}")
    _look_at_unknown(found, kind)
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error


def _look_at_unknown(found: Object, kind: type[Struct]) -> None:
    """Refuse fields that would mean something, or that are nearly ours. Others are for other servers: they are told of
    in the log, once."""
    known = kind.__struct_fields__
    unknown = [name for name in found if name not in known and name not in _WITHOUT_EFFECT and found[name] is not None]
    if len(unknown) > _MOST_UNKNOWN:
        raise ApiError(400, f"the request has {len(unknown)} fields that are not known, such as {unknown[0][:64]}")
    for name in unknown:
        if name in _INSTEAD:
            raise ApiError(400, f"{name} is not supported: {_INSTEAD[name]}", param=name, code="unsupported")
        near = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.85)
        if near:
            raise ApiError(400, f"{name} is no field of this request: did you mean {near[0]}?", param=name)
        if name not in _told and len(_told) < _MOST_TOLD:
            _told.add(name)
            _log.warning("requests have a field %.64r that is not known here; it has no effect", name)


_MOST_TOLD = 100
_MOST_UNKNOWN = 50
_told: set[str] = set()


def _invalid(message: str) -> ApiError:
    """msgspec's words, with the place in front: `max_tokens: expected int | null, got str`."""
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
