"""Fields of a request that a server refuses, learned from its errors as a client learns them.

OpenAI's newest models take `max_completion_tokens` in place of `max_tokens`; others refuse `temperature` or `stop`. The
error names the field, so the request is sent again with the other name, or without the field.

>>> error = '{"error": {"message": "max_tokens is not supported", "type": "invalid_request_error"}}'
>>> name, refused = next(refused_fields(error, {"max_tokens": 16, "temperature": 0}))
>>> fitted({"max_tokens": 16, "temperature": 0}, {name: refused})
{'max_completion_tokens': 16, 'temperature': 0}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .exchange import json_of

_NAMED_OTHERWISE = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_OPTIONAL = frozenset(
    ("parallel_tool_calls", "seed", "stop", "stop_sequences", "store", "stream_options", "temperature")
)
_NOT_KNOWN = re.compile(
    r"instead|unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra|not (?:permitted|allowed)|deprecated",
    re.I,
)
"""Words by which a server says that it does not know a field, rather than that it does not like its value."""


@dataclass(frozen=True, slots=True)
class RefusedField:
    """A field that a server refuses.

    sent_as: the name that it takes; empty: the field is left out.
    said: the server's error.
    """

    sent_as: str
    said: str

    @property
    def remedy(self) -> str:
        return f"sent as {self.sent_as}" if self.sent_as else "left out"


def fitted(body: Mapping[str, Any], refused: Mapping[str, RefusedField]) -> dict[str, Any]:
    """A request without what its server refuses."""
    names = {name: refused[name].sent_as if name in refused else name for name in body}
    return {names[name]: value for name, value in body.items() if names[name]}


def refused_fields(raw: str, body: Mapping[str, Any], more: Collection[str] = ()) -> Iterator[tuple[str, RefusedField]]:
    """The fields of a request that an error may be about: first the one of `error.param`, then those that it mentions.

    more: fields that may be left out, too.
    """
    try:
        error = json_of(raw)
    except ValueError:
        error = None
    inner = error.get("error") if isinstance(error, Mapping) else None
    param = inner.get("param") if isinstance(inner, Mapping) else None
    names = dict.fromkeys([*([param] if isinstance(param, str) else []), *re.findall(r"\w+", raw)])
    for name in names:
        if name not in body:
            continue
        if name in _NAMED_OTHERWISE:
            if _NOT_KNOWN.search(raw):
                yield name, RefusedField(_NAMED_OTHERWISE[name], raw)
        elif name in _OPTIONAL or name in more:
            yield name, RefusedField("", raw)
