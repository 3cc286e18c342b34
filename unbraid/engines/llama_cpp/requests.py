"""Requests to llama.cpp inside the process: a `Generation` as its JSON, and its errors as those of `engines.base`."""

from __future__ import annotations

import json
import math
from typing import Any

from ...core.vocabulary import WholeVocabulary
from ..base import EngineDown, EngineError, EngineFailed, Generation, PromptTooLong, Sampling, Unsupported
from .constraint_fields import constraint_fields

MARGIN = 3
"""How many tokens more than wanted are asked for: a token that ends inside a character is told only with the token that
completes it."""
_MOST_BIAS = 1e6
_SEEDS = 2**32 - 1  # the highest one means any


def as_request(
    request: Generation, prompt: tuple[int, ...], limit: int, context: int, vocabulary: WholeVocabulary
) -> bytes:
    """The body that asks llama.cpp for `request`. Stop texts and tokens are not in it: the reader looks for them."""
    body: dict[str, Any] = {
        "prompt": prompt,
        "n_predict": limit + MARGIN,
        "stream": True,
        "verbose": True,  # for each token's id, and how many there are
        "return_progress": True,  # after each batch of the prompt: that is when it can be aborted
        "cache_prompt": True,
        "sse_ping_interval": -1,
        **_sampling(request.sampling, context),
        "logit_bias": _biases(request),
    }
    if request.logprobs is not None:
        body["n_probs"] = max(1, request.logprobs)
    if request.constraint is not None:
        body |= constraint_fields(request.constraint, vocabulary)
    return json.dumps(body).encode()


def _sampling(sampling: Sampling, context: int) -> dict[str, Any]:
    greedy = sampling.temperature <= 0
    top_k = 1 if greedy else max(0, sampling.top_k)
    penalties = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1
    active = {
        "penalties": penalties,
        "temperature": not greedy,
        "min_p": not greedy and sampling.min_p > 0,
        "top_k": top_k > 0,
        "top_p": not greedy and sampling.top_p < 1,
    }
    return {
        "samplers": [name for name, is_active in active.items() if is_active],
        "temperature": 1.0 if greedy else sampling.temperature,
        "top_k": top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": context if penalties else 0,
        "seed": _SEEDS if sampling.seed is None else sampling.seed % _SEEDS,
    }


def _biases(request: Generation) -> list[tuple[int, float | bool]]:
    """`False` forbids a token, but never where there is a constraint: that must always leave a token to choose."""
    bias = request.sampling.logit_bias
    if any(map(math.isnan, bias.values())):
        raise Unsupported("logit_bias has a value that is not a number", field="logit_bias")
    may_forbid = request.constraint is None
    return [
        (token, False if may_forbid and value == -math.inf else max(-_MOST_BIAS, min(_MOST_BIAS, value)))
        for token, value in bias.items()
    ]


def as_error(answer: Any) -> EngineError:
    """What llama.cpp says has gone wrong."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return EngineFailed(f"llama.cpp failed: {answer}")
    message, kind = str(error.get("message", error)), error.get("type")
    if kind == "exceed_context_size_error":
        return PromptTooLong(message)
    if "grammar" in message:
        refused = f"llama.cpp does not take the constraint's grammar ({message}): leave the constraint out"
        return Unsupported(refused, field="constraint")
    if kind == "unavailable_error":
        return EngineDown(f"llama.cpp takes no requests now: {message}")
    if error.get("code") in (400, 501):
        return Unsupported(f"llama.cpp does not take the request: {message}")
    return EngineFailed(f"llama.cpp failed: {message}")
