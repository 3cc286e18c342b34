"""Format detection: which format a chat template writes, found by rendering it.

Probe turns of an assistant are rendered (`probing`), and every registered format parses the result (`matching`,
`ranking`). The format that gets the turns back is the template's. If none does, one is derived from the
rendered text (`derivation`); if the template shows no calls, its markers give a hint (`marker_hints`). `verdict`
decides.

    detection = unbraid.detect(Path("path/to/model"))
    detection.format, detection.verified, detection.reasons

Templates are rendered as prompts are, in the sandbox, with tighter limits.
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
