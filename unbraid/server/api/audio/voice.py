"""What a request says about voice activity: `vad_filter`, as faster-whisper's servers have it, and OpenAI's
`chunking_strategy` (`auto`, or an object of the type `server_vad`, as JSON or spread over the form).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....speech.options import VoiceOptions
from ...errors import ApiError
from .fields import Fields, number_in

_NAME = "chunking_strategy"
_MOST_MS = 60_000.0
_KNOWN = ("type", "threshold", "prefix_padding_ms", "silence_duration_ms")


def read_vad(fields: Fields, available: bool) -> VoiceOptions | None:
    """What is speech; None if all is to be decoded.

    available: whether there is a detector.
    """
    strategy = _strategy(fields)
    wanted = fields.flag("vad_filter") if fields.text("vad_filter") else None
    if strategy is not None and wanted is False:
        raise ApiError(400, f"vad_filter: {_NAME} needs it; leave one of them out", param="vad_filter")
    if (wanted or strategy is not None) and not available:
        name = "vad_filter" if strategy is None else _NAME
        message = f"{name}: this server has no voice activity detector; leave it out"
        raise ApiError(400, message, param=name, code="unsupported")
    return None if wanted is False else strategy or VoiceOptions()


def _strategy(fields: Fields) -> VoiceOptions | None:
    text = fields.text(_NAME).strip()
    if text == "auto":
        return VoiceOptions()
    given: Any = fields.inside(_NAME)
    if text:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
    if given == {} and not text:
        return None
    if not isinstance(given, Mapping) or given.get("type") != "server_vad":
        raise ApiError(400, f"{_NAME} must be auto or an object with the type server_vad", param=_NAME)
    unknown = set(given) - set(_KNOWN)
    if unknown:
        message = f"{_NAME}.{min(unknown)[:64]} is not known; there are {', '.join(_KNOWN)}"
        raise ApiError(400, message, param=_NAME)
    default = VoiceOptions()
    return VoiceOptions(
        threshold=_number(given, "threshold", default.threshold, 1.0),
        padding=_number(given, "prefix_padding_ms", 1000 * default.padding, _MOST_MS) / 1000,
        pause=_number(given, "silence_duration_ms", 1000 * default.pause, _MOST_MS) / 1000,
    )


def _number(given: Mapping[str, Any], key: str, default: float, most: float) -> float:
    value = given.get(key)
    return default if value is None else number_in(value, f"{_NAME}.{key}", 0.0, most)
