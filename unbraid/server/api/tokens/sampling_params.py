"""What vLLM's engine is told beside the ids, as the fields of its `SamplingParams`."""

from __future__ import annotations

import json
from typing import Annotated, Any

from msgspec import Meta, Struct

from ....engines import Generation, PromptTooLong
from ...errors import ApiError
from ...model import Model

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
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if self.structured_outputs is not None:
            given["structured_outputs"] = _NO_OUTPUTS | self.structured_outputs
        return given


def sampling_params(
    generation: Generation, model: Model, engine: EngineFields, *, count: int, stream: bool, special: bool
) -> dict[str, Any]:
    """What the engine is told. `special`: whether control tokens belong to the text that it makes of its output."""
    chosen, max_tokens = generation.sampling, _room(generation, model)
    stops = [id for id in generation.stop_tokens if id not in model.own_ends]
    params: dict[str, Any] = {
        **({"n": count} if count != 1 else {}),
        "presence_penalty": chosen.presence_penalty,
        "frequency_penalty": chosen.frequency_penalty,
        "repetition_penalty": chosen.repetition_penalty,
        "temperature": chosen.temperature,
        "top_p": chosen.top_p,
        **({"top_k": chosen.top_k} if chosen.top_k else {}),
        "min_p": chosen.min_p,
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


def _room(generation: Generation, model: Model) -> int | None:
    """How many tokens may come: what is asked for, or as many as there is room for. None where nobody knows."""
    context, wanted = model.context, generation.max_tokens
    if context is None:
        return wanted
    if wanted is not None and wanted > context:
        message = f"max_tokens: {wanted} are more than the context of {context} tokens; ask for fewer"
        raise ApiError(400, message, param="max_tokens")
    left = context - len(generation.prompt)
    if left < 1:
        raise PromptTooLong(
            f"the prompt has {len(generation.prompt)} tokens, and the context {context}: shorten it", field="messages"
        )
    return left if wanted is None else min(wanted, left)
