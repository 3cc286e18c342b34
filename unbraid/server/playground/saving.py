"""A transcript that the page has, as the file that somebody saves."""

from __future__ import annotations

from typing import Any

from ...errors import UnbraidError
from ...speech.outputs import as_srt, as_vtt
from ...speech.transcript import Segment, Transcript
from .asked import Question


def saved(asked: Question) -> dict[str, Any]:
    """Segments as SRT or WebVTT, as the API itself writes them."""
    writers = {"srt": as_srt, "vtt": as_vtt}
    writer = writers.get(asked.text("kind"))
    if writer is None:
        raise UnbraidError(f"kind is one of {', '.join(writers)}", field="kind")
    try:
        segments = [
            Segment(float(one["start"]), float(one["end"]), str(one["text"]), None) for one in asked.json("segments")
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise UnbraidError("segments must be a list of objects with start, end and text", field="segments") from error
    return {"text": writer(Transcript("", None, None, 0.0, tuple(segments)))}
