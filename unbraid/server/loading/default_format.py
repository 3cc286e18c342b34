"""The default format: what the model's chat template shows, where no setting names one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ...core.grammar import Format
from ...errors import UnbraidError
from ...formats import find
from ...templates import ChatTemplate
from ...templates.detection import DetectionInput, detect_in

_log = logging.getLogger(__name__)
_PLAIN = Format("plain")
_NAME_IT = "--format names another, --tool-call-parser and --reasoning-parser parts of one"


def default_format(templates: Mapping[str, ChatTemplate], response_template: object = None) -> Format:
    """The format that the templates write. The log says why, as a warning where it could not be verified. Where a
    template has no tools, calls are written as in Hermes, and the prompt explains them to the model."""
    if not templates and response_template is None:
        _log.info("format hermes, since there is no chat template to tell it by")
        return find("hermes")
    try:
        found = detect_in(DetectionInput(templates, response_template))
    except UnbraidError as error:
        _log.warning("the format cannot be told (%s), so all output is content; %s", error, _NAME_IT)
        return _PLAIN
    why = "; ".join(found.reasons)
    if found.format is None:
        near = f"; nearest are {', '.join(found.alternatives)}" if found.alternatives else ""
        _log.warning("no format was found (%s%s), so all output is content; %s", why, near, _NAME_IT)
        return _PLAIN
    format = _with_calls(found.format)
    if found.format.tools is None:
        why += "; calls are Hermes', which the prompt explains to the model"
    if found.verified:
        _log.info("format %s: %s", format.name, why)
    else:
        _log.warning("format %s, which could not be verified: %s; %s", format.name, why, _NAME_IT)
    return format


def _with_calls(format: Format) -> Format:
    """A format without calls, with those that the prompt will explain."""
    hermes = find("hermes")
    if format.tools is not None:
        return format
    if format.reasoning is None:
        return hermes
    return replace(format, name=f"{format.name}+{hermes.name}", tools=hermes.tools, ends=(*format.ends, *hermes.ends))
