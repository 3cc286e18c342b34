"""What the replies of OpenAI's routes share: the head, token counts, logprobs."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable
from typing import Any

from ...engines import TokenLogprob
from ..turn import Usage

_LEAST_LOGPROB = -9999.0
"""What OpenAI's API says of a token that is as good as impossible."""


class Head:
    """The fields that a reply and all its chunks begin with."""

    def __init__(self, model: str, kind: str = "chatcmpl") -> None:
        self.id = f"{kind}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.model = model

    def fields(self, object: str) -> dict[str, Any]:
        return {"id": self.id, "object": object, "created": self.created, "model": self.model}


def usage_of(usages: Iterable[Usage]) -> dict[str, Any]:
    """The token counts of a request."""
    found = list(usages)
    prompt, completion = sum(each.prompt for each in found), sum(each.completion for each in found)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached for each in found)},
    }


def logprobs_of(logprobs: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    return [{**_logprob(one), "top_logprobs": [_logprob(other) for other in one.top]} for one in logprobs]


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.bytes.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(one.bytes)}


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST_LOGPROB
