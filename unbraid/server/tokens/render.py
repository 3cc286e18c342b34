"""`POST /v1/chat/completions/render` and `/v1/completions/render`: a request as its ids, and what the engine needs.

The reply is the body of vLLM's `/inference/v1/generate`. Its constraint is a structural tag, which holds from the first
token: the grammar knows the reasoning. So `reasoning_ended` is true with one, whatever the prompt says.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from ...engines import Generation, PromptTooLong
from ..api.bodies import OPENAI_FIELDS, UndeclaredFields, invalid, read, read_json_body
from ..api.chat import ChatRequest, task_of
from ..api.completions import CompletionRequest, plan_text
from ..api.fields import GenerationFields, Object
from ..errors import ApiError
from ..generation.continuation import masks_of
from ..generation.plan import Plan, plan_chat
from ..http import while_connected
from ..model import Model, chosen
from ..service import Service

_EACH, _AT_END = 1, 2
"""vLLM's numbers for an output that comes in deltas, and for one that comes whole."""
_NO_OUTPUTS = {
    **dict.fromkeys(("json", "regex", "choice", "grammar", "json_object")),
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
    "whitespace_pattern": None,
    "structural_tag": None,
    "_backend": None,
    "_backend_was_auto": False,
}


class EngineFields(Struct, kw_only=True):
    """Fields of a request that are the engine's alone. They go to it as they are."""

    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: int | None = None
    thinking_token_budget: int | None = None
    structured_outputs: dict[str, Any] | None = None

    def passed_on(self) -> dict[str, Any]:
        fields = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if self.structured_outputs is not None:
            fields["structured_outputs"] = _NO_OUTPUTS | self.structured_outputs
        return fields


_ENGINE = frozenset(EngineFields.__struct_fields__)
_FIELDS = UndeclaredFields(
    OPENAI_FIELDS.without_effect | _ENGINE | {"return_token_offsets", "mm_payload"},
    {name: what for name, what in OPENAI_FIELDS.instead.items() if name not in _ENGINE},
)
_encode = msgspec.json.encode


class RenderRequest(ChatRequest, kw_only=True):
    """The body of `POST /v1/chat/completions/render`."""

    request_id: str | None = None
    cache_salt: str | None = None
    priority: int | None = None
    return_masks: bool | None = None
    """Whether to tell for each id whose message it belongs to, whether it was sampled, and whether it is content."""


class RenderTextRequest(CompletionRequest, kw_only=True):
    """The body of `POST /v1/completions/render`."""

    request_id: str | None = None
    cache_salt: str | None = None
    priority: int | None = None


class TokenMasks(TypedDict):
    """For each id: whose message it belongs to (-1: nobody's), whether it was sampled, whether it is content."""

    messages: Sequence[int]
    sampled: Sequence[bool]
    content: Sequence[bool]


class GenerateRequest(TypedDict):
    """The body of `/inference/v1/generate`."""

    request_id: str
    token_ids: Sequence[int]
    token_offsets: None
    features: None
    content_parts: None
    sampling_params: Object
    model: str | None
    reasoning_ended: bool | None
    reasoning_parser_kwargs: Object | None
    return_token_ids: None
    output_mode: Literal["tokens"]
    stream: bool
    stream_options: Object | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: None
    ec_transfer_params: None
    masks: NotRequired[TokenMasks]


def read_chat(body: bytes) -> RenderRequest:
    return read(body, RenderRequest, _FIELDS)


async def render_chat(service: Service, request: Request) -> Response:
    body = await read_json_body(request, service.max_body)
    work = service.planned(_render_chat, service.models_by_name(), body, _request_id(request))
    return Response(await while_connected(request.receive, work), media_type="application/json")


async def render_text(service: Service, request: Request) -> Response:
    body = await read_json_body(request, service.max_body)
    work = service.planned(_render_text, service.models_by_name(), body, _request_id(request))
    return Response(await while_connected(request.receive, work), media_type="application/json")


def _request_id(request: Request) -> str:
    return request.headers.get("x-request-id") or secrets.token_hex(8)


def _render_chat(models: Mapping[str, Model], body: bytes, id: str) -> bytes:
    """The reply. All of it is made here: prompts may be large."""
    request = read_chat(body)
    model = _for_vllm(chosen(models, request.model))
    task = task_of(request)
    plan = plan_chat(model, task)
    generation = plan.generations[0]
    params = sampling_params(
        generation, model, _engine_fields(body), count=task.choices, stream=bool(request.stream), special=True
    )
    kwargs: Object = {
        **task.template_kwargs,
        "add_generation_prompt": task.add_generation_prompt,
        "continue_final_message": task.continue_final_message,
    }
    reasons = plan.format.reasoning is not None
    reply = _generate_request(
        f"chatcmpl-{request.request_id or id}",
        generation.prompt,
        params,
        request,
        reasoning_ended=_reasoning_ended(model, plan) if reasons else None,
        reasoning_parser_kwargs={"chat_template_kwargs": kwargs} if reasons else None,
    )
    if request.return_masks:
        assert not isinstance(generation.prompt, str)
        masks = masks_of(model, task, generation.prompt)
        reply["masks"] = {"messages": masks.messages, "sampled": masks.sampled, "content": masks.content}
    return _encode(reply)


def _render_text(models: Mapping[str, Model], body: bytes, id: str) -> bytes:
    request = read(body, RenderTextRequest, _FIELDS)
    model = _for_vllm(chosen(models, request.model))
    plan = plan_text(model, request)
    base = f"cmpl-{request.request_id or id}"
    ids = [base] if len(plan.generations) == 1 else [f"{base}-{at}" for at in range(len(plan.generations))]
    engine = _engine_fields(body)
    return _encode(
        [
            _generate_request(
                id,
                same[0].prompt,
                sampling_params(same[0], model, engine, count=len(same), stream=bool(request.stream), special=False),
                request,
            )
            for id, same in zip(ids, plan.generations, strict=True)
        ]
    )


def _generate_request(
    id: str,
    prompt: str | Sequence[int],
    params: Object,
    request: RenderRequest | RenderTextRequest,
    reasoning_ended: bool | None = None,
    reasoning_parser_kwargs: Object | None = None,
) -> GenerateRequest:
    assert not isinstance(prompt, str)
    return {
        "request_id": id,
        "token_ids": prompt,
        "token_offsets": None,
        "features": None,
        "content_parts": None,
        "sampling_params": params,
        "model": request.model,
        "reasoning_ended": reasoning_ended,
        "reasoning_parser_kwargs": reasoning_parser_kwargs,
        "return_token_ids": None,
        "output_mode": "tokens",
        "stream": bool(request.stream),
        "stream_options": _stream_options(request),
        "cache_salt": request.cache_salt,
        "priority": request.priority or 0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
    }


def _stream_options(request: GenerationFields) -> Object | None:
    if not request.stream or request.stream_options is None:
        return None
    return {"include_usage": request.wants_usage(), "continuous_usage_stats": request.wants_running_usage()}


def _engine_fields(body: bytes) -> EngineFields:
    try:
        return msgspec.json.decode(body, type=EngineFields)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error


def _for_vllm(model: Model) -> Model:
    """A model as a vLLM engine has it, whatever runs it here."""
    if model.vocabulary is None:
        raise ApiError(400, "only the engine knows the model's tokens: start the server with --tokenizer")
    return replace(model, syntax="structural_tag", constrain_auto=False, unconstrained=False)


def _reasoning_ended(model: Model, plan: Plan) -> bool:
    """Whether a constraint holds from the first token: ours does. Without one, whether the prompt has closed the
    reasoning of the turn that it begins."""
    generation, reasoning = plan.generations[0], plan.format.reasoning
    if generation.constraint is not None or reasoning is None:
        return True
    ids, ends = generation.prompt, frozenset(model.end_tokens)
    begin = next((at + 1 for at in range(len(ids) - 1, -1, -1) if ids[at] in ends), 0)
    return reasoning.close.strip() in model.text_of(ids[begin:])


def sampling_params(
    generation: Generation, model: Model, engine: EngineFields, *, count: int, stream: bool, special: bool
) -> dict[str, Any]:
    """What vLLM's engine is told beside the ids, as the fields of its `SamplingParams`. `special`: whether control
    tokens belong to the text that the engine makes of its output, as they do for a chat."""
    chosen = generation.sampling
    max_tokens = _room(generation, model, "messages" if special else "prompt")
    stops = [id for id in generation.stop_tokens if id not in model.own_ends]
    params: dict[str, Any] = {
        **({"n": count} if count != 1 else {}),
        **{name: value for name, value in chosen.numbers().items() if name != "top_k" or value},
        **({} if chosen.seed is None else {"seed": chosen.seed}),
        "stop": list(generation.stop),
        "stop_token_ids": stops,
        **({} if max_tokens is None else {"max_tokens": max_tokens}),
        **({} if generation.logprobs is None else {"logprobs": generation.logprobs}),
        **({"skip_special_tokens": False} if special else {}),
        "output_kind": _EACH if stream else _AT_END,
        "skip_clone": True,
        **({"logit_bias": {str(id): bias for id, bias in chosen.logit_bias.items()}} if chosen.logit_bias else {}),
        "bad_words": [],
        "skip_reading_prefix_cache": False,
        **engine.passed_on(),
    }
    if generation.constraint is not None:
        if engine.structured_outputs is not None:
            message = "structured_outputs: the tools or the response_format constrain the output already; give one"
            raise ApiError(400, message, param="structured_outputs")
        tag = json.dumps(generation.constraint.to_structural_tag(), ensure_ascii=False)
        params["structured_outputs"] = _NO_OUTPUTS | {"structural_tag": tag}
    return params


def _room(generation: Generation, model: Model, prompt_field: str) -> int | None:
    """How many tokens may come: what is asked for, or as many as there is room for. None where nobody knows."""
    context, max_tokens = model.context, generation.max_tokens
    if context is None:
        return max_tokens
    if max_tokens is not None and max_tokens > context:
        message = f"max_tokens: {max_tokens} are more than the context of {context} tokens; ask for fewer"
        raise ApiError(400, message, param="max_tokens")
    left = context - len(generation.prompt)
    if left < 1:
        message = f"the prompt has {len(generation.prompt)} tokens, and the context {context}: shorten it"
        raise PromptTooLong(message, field=prompt_field)
    return left if max_tokens is None else min(max_tokens, left)
