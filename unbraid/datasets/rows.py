"""One recorded output to the values of its new columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..core.grammar import Format
from ..core.message import Message
from ..core.tools import Tools
from ..errors import UnbraidError
from ..formats import resolve
from ..parsing import Parser, UnknownTools

COLUMNS = ("content", "reasoning", "tool_calls", "speech", "diagnostics")
"""The new columns. A row without an output has no value in them."""


@dataclass(frozen=True)
class Parsing:
    """How the outputs of a dataset are parsed. It can be sent to other processes.

    format: a name that `unbraid formats` lists, or a grammar.
    column: the column of the outputs: text, or lists of token ids.
    prefix: the beginning of the names of the new columns.
    tools, unknown_tools, tokenizer, prompt, separate_reasoning, calls_in_reasoning: as for `unbraid.Parser`.
    end_of_turn: whether the models ended their turns themselves, but the end token was not recorded.
    """

    format: str | Format
    column: str
    prefix: str = ""
    tools: Sequence[Mapping[str, Any]] | None = None
    unknown_tools: UnknownTools = "text"
    tokenizer: object | None = None
    prompt: str | Sequence[int] | None = None
    separate_reasoning: bool = True
    calls_in_reasoning: bool | None = None
    end_of_turn: bool = False

    def __post_init__(self) -> None:
        resolve(self.format)
        self.parser(None)  # raises before anything is read

    @property
    def names(self) -> dict[str, str]:
        """The names of the new columns: `COLUMNS` to prefixed names."""
        return {column: self.prefix + column for column in COLUMNS}

    def check_names(self, there: Iterable[str], where: str) -> None:
        """Raise `UnbraidError` if the column is missing, or a new one is there already."""
        names = list(there)
        if self.column not in names:
            raise UnbraidError(f"{where} has no column {self.column!r}: there are {', '.join(map(repr, names))}")
        taken = next((name for name in self.names.values() if name in names), None)
        if taken is not None:
            raise UnbraidError(f"{where} has a column {taken!r} already: give the new ones a prefix, such as 'parsed_'")

    def fingerprint(self) -> str:
        """A digest. Equal options give equal digests."""
        parts = [repr(resolve(self.format)), *(repr(value) for name, value in vars(self).items() if name != "format")]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def parser(self, seed: int | None) -> Parser:
        return Parser(
            self.format,
            tools=None if self.tools is None else Tools(self.tools),
            unknown_tools=self.unknown_tools,
            tokenizer=self.tokenizer,
            prompt=self.prompt,
            separate_reasoning=self.separate_reasoning,
            calls_in_reasoning=self.calls_in_reasoning,
            seed=seed,
        )

    def parse(self, output: Any, seed: int | None = None) -> dict[str, Any]:
        """The values of one row, by column. `seed` makes the ids of calls reproducible."""
        if output is None:
            return dict.fromkeys(COLUMNS)
        parser = self.parser(seed)
        if isinstance(output, str):
            parser.feed(output)
        elif isinstance(output, list) and all(isinstance(token, int) for token in output):
            if self.tokenizer is None:
                raise UnbraidError(f"{self.column!r} holds token ids: give the tokenizer of the model that wrote them")
            parser.feed_tokens(output)
        else:
            kind = type(output).__name__
            raise UnbraidError(f"{self.column!r} must hold text or lists of token ids, not {kind}: name another column")
        parser.finish(end_of_turn=self.end_of_turn)
        return values(parser.message)


def values(message: Message) -> dict[str, Any]:
    """A message as plain values."""
    return {
        "content": message.content,
        "reasoning": message.reasoning,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "complete": call.complete, "raw": call.raw}
            for call in message.tool_calls
        ],
        "speech": [{"text": part.text, "codes": list(part.codes), "section": part.section} for part in message.speech],
        "diagnostics": [asdict(diagnostic) for diagnostic in message.diagnostics],
    }


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts over some rows."""

    rows: int = 0
    with_calls: int = 0
    with_diagnostics: int = 0

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> RowCounts:
        return cls(
            len(rows),
            sum(bool(row["tool_calls"]) for row in rows),
            sum(bool(row["diagnostics"]) for row in rows),
        )

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.rows + other.rows,
            self.with_calls + other.with_calls,
            self.with_diagnostics + other.with_diagnostics,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of a file: what one process parses at a time."""

    first: int
    """The number of the first row."""
    rows: int
    done: float
    """The share of the file up to its end."""
    data: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """The name of its file. Parts of other rows have other names."""
        return f"{self.first:012}-{self.rows}"
