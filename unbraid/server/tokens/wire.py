"""The bodies and errors of vLLM's token contract, as far as they are read here.

The names and shapes are those of `/inference/v1/generate` and `/derender` in vLLM 0.32. Fields that say nothing to us
are passed over, so that a gateway may send what its engine gave it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal, TypedDict

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field
from starlette.responses import Response

from ..errors import ApiError
from ..http import json_response

Id = Annotated[int, Meta(ge=0)]
_NULL = Raw(b"null")


class WireLogprob(Struct):
    """How likely a token was."""

    token_id: Id
    logprob: float


class PositionLogprobs(WireLogprob):
    """The token at a position, and the likeliest ones in its place."""

    top_logprobs: list[WireLogprob] = []


class Logprobs(Struct):
    content: list[PositionLogprobs] | None = None


class TokenChoice(Struct):
    """One output of an engine, or the next part of it."""

    index: int = 0
    token_ids: list[Id] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Logprobs | None = None


class WholeChoice(TokenChoice):
    finish_reason: str | None = "stop"


class TokenCounts(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Generated(Struct):
    """What a whole output and a chunk of one share."""

    request_id: str | None = None
    prompt_token_ids: list[Id] | None = None
    metrics: dict[str, Any] | None = None
    usage: TokenCounts | None = None
    output_mode: Literal["tokens"] = "tokens"
    """An output that is text already has nothing to be read here."""


class GenerateChunk(Generated, kw_only=True):
    """One event of a stream of `/inference/v1/generate`."""

    choices: list[TokenChoice]


class GenerateResponse(Generated, kw_only=True):
    """A whole reply of `/inference/v1/generate`."""

    choices: list[WholeChoice]
    prompt_logprobs: Any = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None


class StreamState(Struct):
    """What goes back and forth between the chunks of a stream. The fields are vLLM's, so that clients which know them
    by name carry it. `prev_tokens` holds the sealed state, in base64; the others are told, and not read."""

    prev_tokens: list[bytes] = []
    role_sent: bool = False
    output_token_ids: Raw = field(default_factory=lambda: _NULL)

    @property
    def sealed(self) -> bytes | None:
        """The sealed state; None where a stream begins. Raises `ApiError` for a state of vLLM's own: what that server
        has made of the stream so far is not known here."""
        if self.prev_tokens:
            return self.prev_tokens[0]
        if self.role_sent or bytes(self.output_token_ids) not in (b"null", b"[]"):
            raise bad_state("it is another kind of server's; a stream goes on where it began")
        return None


class DerenderFields(Struct, kw_only=True):
    """What all bodies of `/derender` share."""

    stream: bool = False
    model: str | None = None
    generate_chunk: GenerateChunk | None = None
    stream_state: StreamState | None = None


class DerenderChatRequest(DerenderFields, kw_only=True):
    """The body of `POST /v1/chat/completions/derender`."""

    generate_response: GenerateResponse | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: Raw = field(default_factory=lambda: _NULL)
    """Read where a stream begins, and passed over in all other chunks."""
    chat_request: Raw = field(default_factory=lambda: _NULL)
    """The same bytes come with every chunk. They are read once."""


class DerenderCompletionRequest(DerenderFields, kw_only=True):
    """The body of `POST /v1/completions/derender`."""

    generate_responses: list[GenerateResponse] | None = None
    prompt_tokens: int | list[int] | None = None
    completion_request: Raw = field(default_factory=lambda: _NULL)


class ToldState(Struct, gc=False):
    """A `StreamState` as it is told, with all of vLLM's fields."""

    prev_tokens: tuple[bytes]
    role_sent: bool
    logprob_text_offset: int
    tools_streamed: bool
    prefix_offset: int = 0
    read_offset: int = 0
    logprob_context_token_ids: tuple[()] = ()
    output_token_ids: tuple[()] = ()
    output_chunk_lens: tuple[()] = ()
    last_tool_call_ids: tuple[()] = ()


class ToldFunction(Struct, gc=False):
    """What is new of a call: its arguments, and with the first of them its name."""

    name: str | None
    arguments: str


class ToldCustom(Struct, gc=False):
    """The same of a call of a custom tool, whose input is free text."""

    name: str | None
    input: str


class ToldCall(Struct, gc=False):
    """A call, of which there is something new."""

    id: str | None
    type: str | None
    index: int
    function: ToldFunction | UnsetType = UNSET
    custom: ToldCustom | UnsetType = UNSET


class ToldDelta(Struct, gc=False):
    """What is new in a message."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToldCall] | UnsetType = UNSET
    tts_content: dict[str, str] | UnsetType = UNSET
    """Speech, which OpenAI has no field for."""


class ToldChatChoice(Struct, gc=False):
    """What is new in a stream of chat."""

    index: int
    delta: ToldDelta
    logprobs: dict[str, Any] | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | None


class ToldChatChunk(Struct, gc=False):
    """A chunk of OpenAI's chat dialect, with vLLM's fields."""

    id: str
    created: int
    model: str
    choices: tuple[ToldChatChoice, ...]
    usage: dict[str, Any] | None
    metrics: dict[str, Any] | None
    object: str = "chat.completion.chunk"
    system_fingerprint: None = None
    prompt_token_ids: None = None
    prompt_text: None = None


class ToldChunk(Struct, gc=False):
    """The reply to a chunk. Structs are quicker to make and to write than dicts, and one is made for every token."""

    chunk: ToldChatChunk
    stream_state: ToldState


class TextChunk(TypedDict):
    """A chunk of a completion, with vLLM's fields."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any] | None
    system_fingerprint: None
    metrics: dict[str, Any] | None


class ToldTextChunk(Struct, gc=False):
    """The reply to a chunk of a completion."""

    chunk: TextChunk
    stream_state: ToldState


def bad_state(why: str) -> ApiError:
    return ApiError(400, f"stream_state: {why}", param="stream_state", code="invalid_stream_state")


def field_bytes(raw: Raw) -> bytes | None:
    """A field that was not read yet; None where it is not given."""
    bytes_ = bytes(raw)
    return None if bytes_ == b"null" else bytes_


class ReadingFields(Struct):
    """Of a `chat_request`, what says how its reply is to be read."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    separate_reasoning: bool | None = None
    calls_in_reasoning: bool | None = None
    include_reasoning: bool | None = None
    return_token_ids: bool | None = None
    tts_output: bool | None = None
    continue_final_message: bool | None = None
    messages: Raw = field(default_factory=lambda: _NULL)
    """Needed only where the model goes on with the last of them."""


class TextFields(Struct):
    """The same of a `completion_request`."""

    skip_special_tokens: bool | None = None


_ERROR_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
    500: "InternalServerError",
    501: "NotImplementedError",
}


class VllmErrorFields(TypedDict):
    message: str
    type: str
    param: str | None
    code: int


class VllmError(TypedDict):
    """vLLM's error object: the code is the HTTP status."""

    error: VllmErrorFields


def vllm_error(error: ApiError) -> Response:
    """An error as vLLM's error object: `code` is the HTTP status, and `type` the name of its kind."""
    kind = _ERROR_TYPES.get(error.status, HTTPStatus(error.status).phrase)
    fields: VllmErrorFields = {"message": error.message, "type": kind, "param": error.param, "code": error.status}
    return json_response(VllmError(error=fields), error.status, error.headers())
