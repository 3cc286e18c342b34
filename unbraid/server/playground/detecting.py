"""The format of a chat template, or of a model's `tokenizer_config.json`, with the reasons."""

from __future__ import annotations

import json
from functools import lru_cache

from ...errors import UnbraidError
from ...templates.detection import Detection, detect


@lru_cache(maxsize=8)
def detection_of(pasted: str) -> Detection:
    """What is found in a template, or in the JSON of a tokenizer's configuration."""
    if pasted.lstrip().startswith("{") and not pasted.lstrip().startswith(("{{", "{%", "{#")):
        try:
            config = json.loads(pasted)
        except (ValueError, RecursionError) as error:
            raise UnbraidError(f"this is neither a template nor JSON: {error}", field="template") from error
        return detect(config)
    return detect(pasted)
