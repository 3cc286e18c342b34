"""Shapes of calls that many families share."""

from __future__ import annotations

from ..core.grammar import Call, CallList
from ..core.notations import JsonCall

NAMED_OBJECT = JsonCall(arguments=("arguments", "parameters"))
"""`{"name": …, "arguments": {…}}`."""
PARAMETERS_OBJECT = JsonCall(arguments=("parameters", "arguments"))
"""The same, with the arguments called `parameters`."""


def json_list(call: JsonCall = NAMED_OBJECT) -> CallList:
    """A JSON array of calls."""
    return CallList(Call((call,)), open="[", separator=", ", close="]")
