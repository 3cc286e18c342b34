"""The beginning of an output, as parts that a language can be followed through.

An output that broke off goes on somewhere else, under the constraint for its rest. Tokens that a language names by
their ids are kept as such; all others are text. `States.after` follows the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from .language import OutputLanguage, Token


class NotContinued(UnbraidError):
    """No constraint can be made for the rest of an output; the message says why."""


@dataclass(frozen=True, slots=True)
class WrittenToken:
    """A token of the output that may be more than its text."""

    id: int
    text: str


Written = str | WrittenToken
"""A part of the output so far."""


def read_output(
    output: str | Iterable[int], language: OutputLanguage, vocabulary: Vocabulary | None
) -> tuple[Written, ...]:
    """The parts of an output. Raises `NotContinued` for one that ends inside a character."""
    if isinstance(output, str):
        return (output,) if output else ()
    named = [node.ranges for node in language.nodes() if isinstance(node, Token)]
    parts: list[Written] = []
    data = b""
    for token in output:
        spelled = None if vocabulary is None else vocabulary.token_bytes(token)
        if any(low <= token <= high for ranges in named for low, high in ranges):
            parts += [*_text(data), WrittenToken(token, (spelled or b"").decode("utf-8", "replace"))]
            data = b""
        elif spelled is None:
            raise NotContinued(f"the text of token {token} is not known")
        else:
            data += spelled
    return (*parts, *_text(data))


def _text(data: bytes) -> list[str]:
    try:
        return [data.decode()] if data else []
    except UnicodeDecodeError as error:
        raise NotContinued("what was written so far ends inside a character, or is no text") from error


def from_trigger(prefix: Seq[Written], marker: str, token: int | None) -> tuple[Written, ...] | None:
    """The parts from the first place on where a lazy grammar wakes; None if there is none."""
    for at, part in enumerate(prefix):
        if isinstance(part, WrittenToken):
            if part.id == token:
                return tuple(prefix[at:])
        elif token is None and marker in part:
            return (part[part.index(marker) :], *prefix[at + 1 :])
    return None


def begun_triggers(prefix: Seq[Written], marker: str) -> list[str]:
    """The beginnings of the marker that the text ends with: the rest of it may come next."""
    text = prefix[-1] if prefix else ""
    if not isinstance(text, str):
        return []
    return [marker[:size] for size in range(1, len(marker)) if text.endswith(marker[:size])]
