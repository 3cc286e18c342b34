"""Format detection: which format a chat template writes, found by rendering it.

Turns of an assistant are rendered, and every registered format parses the result. The format that gets the turns back
is the template's. If none does, one is derived from the rendered text. If the template shows no calls, its markers give
a hint. Templates are rendered as prompts are, in the sandbox, with tighter limits.

    detection = unbraid.detect(Path("path/to/model"))
    detection.format, detection.verified, detection.reasons

In the order in which a template passes through them:

    probes.py             the turns to render: words that no template contains
    evidence.py           what the template renders for them
    affixes.py            common prefixes and suffixes of texts, in whole tags and words
    matching.py           how well a format reads the evidence, and which format reads it best
    locate_call.py        where a call stands in rendered text, and in which notation
    proposals.py          formats made from what the template writes around the probes
    response_template.py  the format that a tokenizer's configuration states
    verdict.py            the decision
    reasons.py            the decision in words
    result.py             what the caller gets

    response_template_export.py  the other way: a format as a tokenizer's configuration states it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.grammar import Format
from ..errors import DetectionError
from ..sources import DetectionInput, read_input
from ..template import ChatTemplate
from .result import Detection, How
from .verdict import detect_in, judge_in


def detect(
    template: str | ChatTemplate | Path | Mapping[str, Any], *, bos_token: str = "", eos_token: str = ""
) -> Detection:
    """See `unbraid.detect`."""
    return detect_in(read_input(template, bos_token, eos_token))


def judge(template: str | ChatTemplate | Path | Mapping[str, Any], format: Format) -> Detection:
    """Whether a format reads back what a template writes: `verified`, and the reasons."""
    return judge_in(read_input(template), format)


__all__ = ["Detection", "DetectionError", "DetectionInput", "How", "detect", "detect_in", "judge", "judge_in"]
