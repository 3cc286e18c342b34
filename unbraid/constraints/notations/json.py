"""Arguments as one JSON object."""

from __future__ import annotations

from ...core.notations import Arguments
from ...schema.regular import Node, sequence
from ..language import SPACE
from .context import CallContext


def arguments(notation: Arguments, call: CallContext) -> Node:
    return sequence(SPACE, call.parameters.json())
