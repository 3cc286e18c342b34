"""What the replies of OpenAI's routes share: the head, token counts, logprobs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar

from msgspec import Meta, Raw
from msgspec.json import encode

from ...core.message import Message
from ...engines import TokenLogprob
from ..generation.updates import Usage
from ..observing.exchange import random_id

T = TypeVar("T")
_MANY = 100
"""Parts of a message that are written at once."""
_LEAST_LOGPROB = -9999.0
"""What OpenAI's API says of a token that is as good as impossible."""

_DETAILS = {
    "reasoning": "reasoning_tokens",
    "audio": "audio_tokens",
    "content": "content_tokens",
    "tool_calls": "tool_call_tokens",
    "speech": "speech_tokens",
}
"""What replies call the counts of strands. The first two names are OpenAI's."""


FinishReason = Annotated[str, Meta(extra_json_schema={"enum": ["stop", "length", "tool_calls"]})]


class TokenUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: NotRequired[dict[str, int]]


class Head:
    """The fields that a reply and all its chunks begin with."""

    def __init__(self, model: str, kind: str = "chatcmpl") -> None:
        self.id = f"{kind}-{random_id()}"
        self.created = int(time.time())
        self.model = model

    def fields(self, object: str) -> dict[str, Any]:
        return {"id": self.id, "object": object, "created": self.created, "model": self.model}


async def unhurried(message: Message, write: Callable[[], T]) -> T:
    """What `write` makes of a message. A message of many parts is written in a thread. The thread always finishes, even
    if this is cancelled."""
    if len(message.parts) <= _MANY:
        return write()
    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(writing)
    finally:
        await asyncio.wait([writing])


def usage_of(usages: Iterable[Usage]) -> TokenUsage:
    """The token counts of a request."""
    usages = list(usages)
    prompt, completion = sum(each.prompt for each in usages), sum(each.completion for each in usages)
    usage: TokenUsage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached for each in usages)},
    }
    strands = [each.strands for each in usages if each.strands is not None]
    if strands and len(strands) == len(usages):
        counts = {name: sum(each[strand] for each in strands) for strand, name in _DETAILS.items()}
        usage["completion_tokens_details"] = counts
    return usage


def usage_so_far(prompt: int, completion: int) -> dict[str, Any]:
    """The token counts in the middle of a stream, of one choice."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def logprobs_of(logprobs: Iterable[TokenLogprob]) -> list[Raw]:
    """Logprobs in OpenAI's form. They are many times as large as the text, so each is encoded as it comes."""
    return [Raw(encode({**_logprob(one), "top_logprobs": [*map(_logprob, one.top)]})) for one in logprobs]


def _logprob(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.bytes.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(one.bytes)}


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST_LOGPROB
