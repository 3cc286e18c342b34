"""What a detection says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ...core.grammar import Format
from ...errors import UnknownFormat
from .format_source import definition

How = Literal["rendered", "derived", "response_template", "markers", "plain", "none"]
_HOWTO = (
    "Name a format if you know it (`unbraid formats` lists them), put one together (`unbraid.compose`), or define one: "
    "a few lines of data, as CONTRIBUTING.md shows under 'Adding a format'."
)


@dataclass(frozen=True)
class Detection:
    """The format that a template speaks, and why."""

    format: Format | None
    """None where none was found."""
    verified: bool
    """Whether the format reads back what the template was rendered with. What is not verified is no more than a guess,
    and only for who has seen that it is."""
    how: How
    """`rendered`: a registered format, by what it reads of rendered turns. `derived`: a new one, made from them.
    `response_template`: the tokenizer says it itself. `markers`: by words in the template's text. `plain`: there is
    nothing but content in what it writes."""
    reasons: tuple[str, ...]
    alternatives: tuple[str, ...] = ()
    """Other formats that read it all as well; where none was found, the nearest ones."""

    @property
    def name(self) -> str | None:
        return None if self.format is None else self.format.name

    @property
    def definition(self) -> str | None:
        """The format as Python makes it, where it has no name to be found by."""
        registered = self.how in ("rendered", "markers")
        return None if self.format is None or registered else definition(self.format)

    def required(self) -> Format:
        """The format; an error that says what to do where there is none, or none that is verified."""
        if self.format is not None and self.verified:
            return self.format
        raise UnknownFormat(self.problem)

    @property
    def problem(self) -> str:
        """What is to be said where no format is verified."""
        why = "; ".join(self.reasons)
        if self.format is not None:
            return f"the format may be {self.format.name!r}, but that could not be verified: {why}. {_HOWTO}"
        near = f" Nearest are {', '.join(self.alternatives)}." if self.alternatives else ""
        return f"no format was found for this template: {why}.{near} {_HOWTO}"

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.name,
            "verified": self.verified,
            "how": self.how,
            "reasons": list(self.reasons),
            "alternatives": list(self.alternatives),
            "definition": self.definition,
        }
