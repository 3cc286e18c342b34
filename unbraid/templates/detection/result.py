"""The result of a detection: the format, how sure it is, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ...core.grammar import Format
from ...errors import UnknownFormat
from .format_source import format_source

How = Literal["rendered", "derived", "response_template", "markers", "plain", "none"]
_HOWTO = (
    "Name a format if you know it (`unbraid formats` lists them), put one together (`unbraid.compose`), or define one: "
    "a few lines of data, as docs/formats.md shows under 'Add a format'."
)


@dataclass(frozen=True)
class Detection:
    """The format of a template, and the reasons."""

    format: Format | None
    """None if none was found."""
    verified: bool
    """Whether the format read back everything that the template rendered. If not, it is a guess: use it only if you
    have checked it."""
    how: How
    """`rendered`: a registered format that reads the rendered turns. `derived`: a new format made from them.
    `response_template`: stated by the tokenizer. `markers`: suggested by words in the template. `plain`: the template
    has nothing but content. `none`: no format was found."""
    reasons: tuple[str, ...]
    alternatives: tuple[str, ...] = ()
    """Other formats that read everything as well; if none was found, the nearest ones."""
    strands: tuple[str, ...] = ()
    """What the template writes: `content`, `reasoning`, `calls`. If `verified`, each of them came back in its own
    strand; about the others nothing is known."""

    @property
    def name(self) -> str | None:
        return None if self.format is None else self.format.name

    @property
    def definition(self) -> str | None:
        """The Python source of the format, if it is not registered."""
        registered = self.how in ("rendered", "markers")
        return None if self.format is None or registered else format_source(self.format)

    def required(self) -> Format:
        """The format. Raises `UnknownFormat`, which says what to do, if none is verified."""
        if self.format is not None and self.verified:
            return self.format
        raise UnknownFormat(self.problem)

    @property
    def problem(self) -> str:
        """The error message if no format is verified."""
        why = "; ".join(self.reasons)
        if self.format is not None:
            return f"the format may be {self.format.name!r}, but that could not be verified: {why}. {_HOWTO}"
        near = f" Nearest are {', '.join(self.alternatives)}." if self.alternatives else ""
        return f"no format was found for this template: {why}.{near} {_HOWTO}"

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.name,
            "verified": self.verified,
            "strands": list(self.strands),
            "how": self.how,
            "reasons": list(self.reasons),
            "alternatives": list(self.alternatives),
            "definition": self.definition,
        }
