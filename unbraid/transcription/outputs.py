"""A transcript in the shapes that OpenAI's API knows."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from .adapters import Task
from .transcript import Segment, Transcript
from .whisper_languages import LANGUAGES

Shape = Literal["json", "text", "verbose_json", "srt", "vtt"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
TIMED: tuple[Shape, ...] = ("verbose_json", "srt", "vtt")
"""Those that say when it was said."""


def usage(transcript: Transcript) -> dict[str, Any]:
    """What OpenAI's API counts: seconds, each begun one as a whole."""
    return {"type": "duration", "seconds": math.ceil(transcript.duration)}


def as_json(transcript: Transcript) -> dict[str, Any]:
    warnings = {"warnings": list(transcript.warnings)} if transcript.warnings else {}
    return {"text": transcript.text, "language": transcript.language, **warnings, "usage": usage(transcript)}


def as_verbose_json(transcript: Transcript, task: Task) -> dict[str, Any]:
    """As OpenAI's API says it, where the language is a name; its code and its probability stand beside it."""
    language = transcript.language
    return {
        "task": task,
        "language": None if language is None else LANGUAGES.get(language, language),
        "language_code": language,
        "language_probability": transcript.language_probability,
        "duration": round(transcript.duration, 2),
        "text": transcript.text,
        "segments": [_segment(number, segment) for number, segment in enumerate(transcript.segments)],
        "warnings": list(transcript.warnings),
        "usage": usage(transcript),
    }


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": round(segment.start * 100),
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
        "language": segment.language,
    }


def as_srt(transcript: Transcript) -> str:
    cues = (
        f"{number}\n{_clock(segment.start, ',')} --> {_clock(segment.end, ',')}\n{_cue(segment)}\n"
        for number, segment in enumerate(transcript.segments, 1)
    )
    return "\n".join(cues)


def as_vtt(transcript: Transcript) -> str:
    cues = (
        f"{_clock(segment.start, '.')} --> {_clock(segment.end, '.')}\n{_cue(segment)}\n"
        for segment in transcript.segments
    )
    return "\n".join(["WEBVTT\n", *cues])


def _cue(segment: Segment) -> str:
    """Text that cannot be taken for the end of the cue, or for the next one's time."""
    return " ".join(segment.text.replace("-->", "->").split())


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"
