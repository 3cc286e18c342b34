"""Which format a model writes, where nobody said it: by the markers in its template."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..core.errors import UnbraidError
from ..core.grammar import Format
from ..formats import find
from ..prompts import ChatTemplate, supports_tools

_log = logging.getLogger(__name__)

# The first of these whose texts are all in the template.
_MARKERS = (
    ("step-audio-2", ("<|BOT|>", "tool_json_schemas")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("qwen3-coder", ("<function=", "<tool_call>")),
    ("lfm2", ("<|tool_list_start|>",)),
    ("qwen3", ("<tool_call>", '"arguments"', "<think>")),
    ("hermes", ("<tool_call>", '"arguments"')),
    ("deepseek-r1", ("<think>", "｜Assistant｜")),
)


def guess_format(templates: Mapping[str, ChatTemplate]) -> Format:
    """The format of a template. One without tools gets Hermes', which the prompt then explains to the model."""
    sources = "\n".join(template.source for template in templates.values())
    for name, markers in _MARKERS:
        if all(marker in sources for marker in markers):
            _log.info("format %s, since the chat template has %s", name, " and ".join(markers))
            return find(name)
    if any(supports_tools(template) for template in templates.values()):
        raise UnbraidError("the chat template writes tool calls in a way that is not known: name it with --format")
    name = "qwen3" if "<think>" in sources else "hermes"
    _log.info("format %s, since the chat template has no tool calls of its own", name)
    return find(name)
