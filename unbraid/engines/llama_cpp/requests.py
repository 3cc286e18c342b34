"""Requests to llama.cpp: a `Generation` as its JSON, a constraint as fields of it, and its errors as ours.

Constraints. llama.cpp itself says what is wrong with most grammars. Two kinds must be refused before: one that would
keep it busy for minutes over one token, and one that leaves it no token to choose, which ends the whole process. The
printed grammar tells both: whether it is too ambiguous, and what must come next at each point.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

from ...constraints import Constraint
from ...constraints.language import Token
from ...constraints.printers import Printed
from ...constraints.printers.gbnf import shown
from ...core.vocabulary import WholeVocabulary
from ...schema.regular import Chars, Verbatim
from ...tokens.retokenize import spell
from ..base import EngineDown, EngineError, EngineFailed, Generation, PromptTooLong, Sampling, Unsupported

MARGIN = 3
"""Tokens asked for beyond the limit: a token that ends inside a character comes only with the token that completes it.
"""
_MOST_BIAS = 1e6
_SEEDS = 2**32 - 1  # the highest one means any


def as_request(
    request: Generation, prompt: tuple[int, ...], limit: int, context: int, vocabulary: WholeVocabulary
) -> bytes:
    """The body of a request to llama.cpp in this process. Stop texts and tokens are not in it: the reader looks for
    them."""
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
    """Biases by token. `False` forbids a token, but never under a constraint, which must leave a token to choose."""
    bias = request.sampling.logit_bias
    if any(map(math.isnan, bias.values())):
        raise Unsupported("logit_bias has a value that is not a number", field="logit_bias")
    may_forbid = request.constraint is None
    return [
        (token, False if may_forbid and value == -math.inf else max(-_MOST_BIAS, min(_MOST_BIAS, value)))
        for token, value in bias.items()
    ]


def constraint_fields(constraint: Constraint, vocabulary: WholeVocabulary | None) -> dict[str, Any]:
    """The fields of a request that enforce the constraint, in the process or over HTTP. Raises `Unsupported` for a
    constraint that llama.cpp would not survive."""
    grammar = constraint.llama_cpp
    where = grammar.printed.too_ambiguous
    if where is not None:
        raise Unsupported(
            f"{where} leaves too many alternatives open at once for llama.cpp, which follows them all: give it fewer "
            "alternatives and optional properties, or a simpler pattern",
            field="constraint",
        )
    dead_end = None if vocabulary is None else _dead_end(grammar.printed, vocabulary)
    if dead_end is not None:
        message = f"the constraint asks for {dead_end}, which the model has no tokens for: leave it out"
        raise Unsupported(message, field="constraint")
    return grammar.fields


def _dead_end(printed: Printed[str], vocabulary: WholeVocabulary) -> str | None:
    """A text in the grammar that the vocabulary cannot spell at a point where nothing else may come."""

    @cache
    def can_spell(char: str) -> bool:
        return spell(vocabulary, char.encode("utf-8", "surrogatepass")) is not None

    def can_begin(leaf: Verbatim | Chars | Token) -> bool:
        match leaf:
            case Verbatim(text):
                return can_spell(text[0])
            case Chars():
                return leaf.excluded or any(can_spell(chr(end)) for ends in leaf.ranges for end in ends)
            case Token():
                return any(vocabulary.token_bytes(token) is not None for token in leaf.ids)

    for point in printed.points:
        possible = [leaf for leaf in point.next if can_begin(leaf)]
        if point.only and not possible:
            return shown(point.next[0])
        for leaf in possible:
            if isinstance(leaf, Verbatim) and not all(map(can_spell, leaf.text)):
                return shown(leaf)
    return None


def as_error(answer: Any) -> EngineError:
    """The error that llama.cpp's answer means."""
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
