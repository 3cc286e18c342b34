"""`POST /v1/chat/completions/render` and `/v1/completions/render`: a request as its ids, and what the engine needs.

The reply is the body of vLLM's `/inference/v1/generate`. Its constraint is a structural tag, which holds from the first
token: the grammar knows the reasoning. So `reasoning_ended` is true with one, whatever the prompt says.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...errors import ApiError
from ...generation.continuation import masks_of
from ...generation.plan import Plan, plan_chat
from ...http import while_connected
from ...model import Model, chosen
from ...service import Service
from ..bodies import OPENAI_FIELDS, UndeclaredFields, invalid, read, read_json_body
from ..chat import ChatRequest, task_of
from ..completions import CompletionRequest, plan_text
from ..fields import GenerationFields, Object
from .sampling_params import EngineFields, sampling_params

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


async def render_chat(service: Service, request: Request) -> Response:
    body = await read_json_body(request, service.max_body)
    work = service.planned(_render_chat, service.known_models(), body, _request_id(request))
    return Response(await while_connected(request.receive, work), media_type="application/json")


async def render_text(service: Service, request: Request) -> Response:
    body = await read_json_body(request, service.max_body)
    work = service.planned(_render_text, service.known_models(), body, _request_id(request))
    return Response(await while_connected(request.receive, work), media_type="application/json")


def _request_id(request: Request) -> str:
    return request.headers.get("x-request-id") or secrets.token_hex(8)


def _render_chat(models: Mapping[str, Model], body: bytes, id: str) -> bytes:
    """The reply. All of it is made here: prompts may be large."""
    asked = read(body, RenderRequest, _FIELDS)
    model = _for_vllm(chosen(models, asked.model))
    task = task_of(asked)
    plan = plan_chat(model, task)
    generation = plan.generations[0]
    params = sampling_params(
        generation, model, _engine_fields(body), count=task.choices, stream=bool(asked.stream), special=True
    )
    kwargs: Object = {
        **task.template_kwargs,
        "add_generation_prompt": task.add_generation_prompt,
        "continue_final_message": task.continue_final_message,
    }
    reasons = plan.format.reasoning is not None
    made = _generate_request(
        f"chatcmpl-{asked.request_id or id}",
        generation.prompt,
        params,
        asked,
        reasoning_ended=_reasoning_ended(model, plan) if reasons else None,
        reasoning_parser_kwargs={"chat_template_kwargs": kwargs} if reasons else None,
    )
    if asked.return_masks:
        assert not isinstance(generation.prompt, str)
        masks = masks_of(model, task, generation.prompt)
        made["masks"] = {"messages": masks.messages, "sampled": masks.sampled, "content": masks.content}
    return _encode(made)


def _render_text(models: Mapping[str, Model], body: bytes, id: str) -> bytes:
    asked = read(body, RenderTextRequest, _FIELDS)
    model = _for_vllm(chosen(models, asked.model))
    plan = plan_text(model, asked)
    base = f"cmpl-{asked.request_id or id}"
    ids = [base] if len(plan.generations) == 1 else [f"{base}-{at}" for at in range(len(plan.generations))]
    engine = _engine_fields(body)
    return _encode(
        [
            _generate_request(
                id,
                same[0].prompt,
                sampling_params(same[0], model, engine, count=len(same), stream=bool(asked.stream), special=False),
                asked,
            )
            for id, same in zip(ids, plan.generations, strict=True)
        ]
    )


def _generate_request(
    id: str,
    prompt: str | Sequence[int],
    params: Object,
    asked: RenderRequest | RenderTextRequest,
    reasoning_ended: bool | None = None,
    reasoning_parser_kwargs: Object | None = None,
) -> Object:
    return {
        "request_id": id,
        "token_ids": prompt,
        "token_offsets": None,
        "features": None,
        "content_parts": None,
        "sampling_params": params,
        "model": asked.model,
        "reasoning_ended": reasoning_ended,
        "reasoning_parser_kwargs": reasoning_parser_kwargs,
        "return_token_ids": None,
        "output_mode": "tokens",
        "stream": bool(asked.stream),
        "stream_options": _stream_options(asked),
        "cache_salt": asked.cache_salt,
        "priority": asked.priority or 0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
    }


def _stream_options(asked: GenerationFields) -> Object | None:
    if not asked.stream or asked.stream_options is None:
        return None
    return {"include_usage": asked.wants_usage(), "continuous_usage_stats": asked.wants_running_usage()}


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
