"""Logprobs of ids as OpenAI's API tells them, with the text and the bytes of each token."""

from __future__ import annotations

from typing import Any

from ....core.vocabulary import Vocabulary
from ..replies import finite
from .wire import Logprobs, TokenLogprob


def chat_logprobs(given: Logprobs | None, vocabulary: Vocabulary) -> dict[str, Any] | None:
    if given is None:
        return None
    if given.content is None:
        return {"content": None}
    return {
        "content": [
            {**_told(each, vocabulary), "top_logprobs": [_told(top, vocabulary) for top in each.top_logprobs]}
            for each in given.content
        ]
    }


def text_logprobs(given: Logprobs | None, vocabulary: Vocabulary, offset: int) -> dict[str, Any] | None:
    """The same in the older dialect. `offset` is how long the text before it is."""
    told = chat_logprobs(given, vocabulary)
    if told is None:
        return None
    entries = told["content"] or ()
    offsets = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry["token"])
    return {
        "text_offset": offsets,
        "token_logprobs": [entry["logprob"] for entry in entries],
        "tokens": [entry["token"] for entry in entries],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in entry["top_logprobs"]} if entry["top_logprobs"] else None
            for entry in entries
        ],
    }


def _told(one: TokenLogprob, vocabulary: Vocabulary) -> dict[str, Any]:
    text = vocabulary.token_bytes(one.token_id) or b""
    return {"token": text.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(text)}
