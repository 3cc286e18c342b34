"""A part of a file: what one process parses at a time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a file that stand together."""

    first: int
    """The number of the first row."""
    rows: int
    done: float
    """Which share of the file is read when it is."""
    data: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """What its file is called. Parts of other rows have other names."""
        return f"{self.first:012}-{self.rows}"
