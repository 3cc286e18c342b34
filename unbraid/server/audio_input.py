"""Audio input: recordings taken out of messages for the engine, with a placeholder left in the prompt."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ..engines import Audio
from ..errors import Place
from ..templates import InvalidMessages, PartHook

_KINDS = ("input_audio", "audio_url")
_DATA_URL = re.compile(r"data:audio/([\w.+-]+);base64,")


def placeholder_hook(placeholder: str | None) -> PartHook:
    """For the prompt builder: the placeholder for a part that is audio. Other parts are refused."""

    return partial(_placeholder, placeholder)


def _placeholder(placeholder: str | None, part: Mapping[str, Any], where: Place) -> str:
    if part.get("type") not in _KINDS:
        raise InvalidMessages(where, f": parts of type {part.get('type')!r} are not supported here, only text")
    if placeholder is None:
        raise InvalidMessages(
            where,
            ": this model is not known to take audio; if it does, the server is to be started with --audio-placeholder",
        )
    return placeholder


def audio_of(messages: Iterable[Mapping[str, Any]]) -> tuple[Audio, ...]:
    """All audio, in the order of the messages."""
    recordings = []
    for at, message in enumerate(messages):
        content = message.get("content")
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, Mapping) and part.get("type") in _KINDS:
                recordings.append(_audio(part, Place("messages", at, "content", number)))
    return tuple(recordings)


def _audio(part: Mapping[str, Any], where: Place) -> Audio:
    kind = part["type"]
    match part.get(kind):
        case {"data": str(data), "format": str(format)}:
            return Audio(_decoded(data, where / kind / "data"), format)
        case {"url": str(url)} if kind == "audio_url":
            head = _DATA_URL.match(url)
            if head is None:
                raise InvalidMessages(where / kind / "url", " must be a data URL (data:audio/wav;base64,…)")
            return Audio(_decoded(url[head.end() :], where / kind / "url"), head[1].removeprefix("x-"))
    raise InvalidMessages(where / kind, " must have data, in base64, and format")


def _decoded(data: str, where: Place) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidMessages(where, f" is not base64: {error}") from error
