"""Response formats: a transcript as JSON, verbose or diarized JSON, text, SRT or WebVTT, as in OpenAI's API.

Where segments have speakers, text and subtitles name them: `A: Good morning.`
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, get_args

from ..engines.base import TokenLogprob
from .languages import LANGUAGES
from .options import TranscriptionOptions
from .transcript import Segment, Transcript, Word

ResponseFormat = Literal["json", "text", "verbose_json", "srt", "vtt", "diarized_json"]
RESPONSE_FORMATS: tuple[ResponseFormat, ...] = get_args(ResponseFormat)
TIMED_FORMATS: tuple[ResponseFormat, ...] = ("verbose_json", "srt", "vtt", "diarized_json")
"""The formats with times."""


def render_transcript(
    transcript: Transcript, format: ResponseFormat, options: TranscriptionOptions
) -> str | Mapping[str, Any]:
    """The transcript in one of the formats: text, or an object to be written as JSON."""
    if format == "text":
        return as_text(transcript)
    if format == "srt":
        return as_srt(transcript)
    if format == "vtt":
        return as_vtt(transcript)
    if format == "diarized_json":
        return as_diarized_json(transcript, options)
    return as_json(transcript, options) if format == "json" else as_verbose_json(transcript, options)


def as_text(transcript: Transcript) -> str:
    """The text; with speakers, a line for each turn."""
    turns = [
        (speaker, "".join(segment.text for segment in segments).strip())
        for speaker, segments in itertools.groupby(transcript.segments, key=lambda segment: segment.speaker)
    ]
    if all(speaker is None for speaker, _ in turns):
        return transcript.text + "\n"
    return "".join(f"{speaker}: {text}\n" for speaker, text in turns)


def usage(transcript: Transcript) -> dict[str, Any]:
    """Usage as in OpenAI's API: seconds, rounded up."""
    return {"type": "duration", "seconds": math.ceil(transcript.duration)}


class TranscriptJson(TypedDict):
    """A transcript as `response_format=json` tells it."""

    text: str
    language: str | None
    usage: dict[str, Any]
    logprobs: NotRequired[list[dict[str, Any]]]
    warnings: NotRequired[list[str]]


def as_json(transcript: Transcript, options: TranscriptionOptions) -> TranscriptJson:
    reply: TranscriptJson = {"text": transcript.text, "language": transcript.language, "usage": usage(transcript)}
    if options.logprobs:
        reply["logprobs"] = token_logprobs(transcript.logprobs)
    if transcript.warnings:
        reply["warnings"] = list(transcript.warnings)
    return reply


def token_logprobs(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Tokens with their logprobs, as in OpenAI's API."""
    return [
        {"token": one.bytes.decode("utf-8", "replace"), "bytes": list(one.bytes), "logprob": one.logprob}
        for one in tokens
    ]


def as_verbose_json(transcript: Transcript, options: TranscriptionOptions) -> dict[str, Any]:
    """As in OpenAI's API, where the language is a name; its code and its probability are additions. Segments are always
    there, also where only words were asked for."""
    language = transcript.language
    words = [word_json(word) for segment in transcript.segments for word in segment.words]
    return {
        "task": options.task,
        "language": None if language is None else LANGUAGES.get(language, language),
        "language_code": language,
        "language_probability": transcript.language_probability,
        "duration": round(transcript.duration, 2),
        "text": transcript.text,
        **({"words": words} if options.words else {}),
        "segments": [_segment(number, segment) for number, segment in enumerate(transcript.segments)],
        "warnings": list(transcript.warnings),
        "usage": usage(transcript),
    }


def as_diarized_json(transcript: Transcript, options: TranscriptionOptions) -> dict[str, Any]:
    """As in OpenAI's API."""
    segments = [diarized_segment(number, segment) for number, segment in enumerate(transcript.segments)]
    reply = {"task": options.task, "duration": transcript.duration, "text": transcript.text, "segments": segments}
    return {
        **reply,
        **({"warnings": list(transcript.warnings)} if transcript.warnings else {}),
        "usage": usage(transcript),
    }


def diarized_segment(number: int, segment: Segment) -> dict[str, Any]:
    """A segment with its speaker, as in OpenAI's API."""
    return {
        "type": "transcript.text.segment",
        "id": f"seg_{number}",
        "start": segment.start,
        "end": segment.end,
        "text": segment.text.strip(),
        "speaker": segment.speaker or "A",
    }


def word_json(word: Word) -> dict[str, Any]:
    return {"word": word.text.strip(), "start": word.start, "end": word.end, "probability": round(word.probability, 4)}


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
        **({} if segment.speaker is None else {"speaker": segment.speaker}),
    }


def as_srt(transcript: Transcript) -> str:
    return "\n".join(cue(segment, number, "srt") for number, segment in enumerate(transcript.segments, 1))


def as_vtt(transcript: Transcript) -> str:
    return "\n".join(["WEBVTT\n", *(cue(segment, 0, "vtt") for segment in transcript.segments)])


def cue(segment: Segment, number: int, format: ResponseFormat) -> str:
    """A segment as a cue of subtitles. An empty line stands between two of them."""
    if format == "vtt":
        return f"{_times(segment, '.')}\n{html.escape(_line(segment), quote=False)}\n"
    # SRT has no escapes, and an arrow would be read as the times of the next cue.
    return f"{number}\n{_times(segment, ',')}\n{_line(segment).replace('-->', '->')}\n"


def _line(segment: Segment) -> str:
    """The text on one line, after its speaker: an empty line would end the cue."""
    return " ".join([*([f"{segment.speaker}:"] if segment.speaker else []), *segment.text.split()])


def _times(segment: Segment, point: str) -> str:
    return f"{_clock(segment.start, point)} --> {_clock(segment.end, point)}"


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"
