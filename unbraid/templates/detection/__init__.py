"""Which format a chat template speaks, found by trying it: what it writes for turns of an assistant is read by the
formats, and the one that gets them back is the template's. Where none does, one is derived from what it writes.

    detection = unbraid.detect(Path("path/to/model"))
    detection.format, detection.verified, detection.reasons

Templates are rendered as prompts are (`unbraid.prompts`), in a sandbox, with limits on time and size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import ChatTemplate
from .verdict import detect_in
from .errors import DetectionError
from .inputs import Given, read_given
from .result import Detection, How


def detect(
    template: str | ChatTemplate | Path | Mapping[str, Any], *, bos_token: str = "", eos_token: str = ""
) -> Detection:
    """See `unbraid.detect`."""
    return detect_in(read_given(template, bos_token, eos_token))


__all__ = ["Detection", "DetectionError", "Given", "How", "detect", "detect_in"]
