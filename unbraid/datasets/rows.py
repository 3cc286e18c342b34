"""One recorded output to the values of its new columns; what becomes of a row that cannot be parsed; counts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from ..core.diagnostics import OF_BROKEN_CALLS
from ..core.grammar import Format
from ..core.message import Message
from ..core.tools import Tools
from ..errors import UnbraidError
from ..formats import resolve
from ..parsing import Parser, UnknownTools

COLUMNS = ("content", "reasoning", "tool_calls", "speech", "diagnostics")
"""The columns of what an output says. A row without an output has no value in them."""
ERROR = "error"
"""The column with the reason why a row could not be parsed, where such rows are kept."""
OnError = Literal["keep", "skip", "fail"]
ON_ERROR: tuple[OnError, ...] = get_args(OnError)
_TOLD = 5
"""How many reasons the counts keep."""


@dataclass(frozen=True)
class Parsing:
    """How the outputs of a dataset are parsed. It can be sent to other processes.

    format: a name that `unbraid formats` lists, or a grammar.
    column: the column of the outputs: text, or lists of token ids.
    prefix: the beginning of the names of the new columns.
    tools, unknown_tools, tokenizer, prompt, separate_reasoning, calls_in_reasoning: as for `unbraid.Parser`.
    end_of_turn: whether the models ended their turns themselves, but the end token was not recorded.
    on_error: what becomes of a row that cannot be parsed. `keep`: it stays, and the column `error` says why; `skip`: it
        is left out; `fail`: it raises `UnbraidError`.
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
    on_error: OnError = "keep"

    def __post_init__(self) -> None:
        if self.on_error not in ON_ERROR:
            raise UnbraidError(f"on_error is {self.on_error!r}: give {', '.join(ON_ERROR)}")
        resolve(self.format)
        self.parser(None)  # raises before anything is read

    @property
    def names(self) -> dict[str, str]:
        """The names of the new columns: `COLUMNS`, and `ERROR` where bad rows are kept, to prefixed names."""
        columns = (*COLUMNS, ERROR) if self.on_error == "keep" else COLUMNS
        return {column: self.prefix + column for column in columns}

    @property
    def wants_tokenizer(self) -> str:
        """What is wrong where outputs are token ids, and nothing can read them."""
        return f"{self.column!r} holds token ids: give the tokenizer of the model that wrote them (--tokenizer)"

    def check_names(self, names: Collection[str], where: str) -> None:
        """Raise `UnbraidError` if the column is missing, or a new one is there already."""
        self.check_column(names, where)
        self.check_room(names, where)

    def check_column(self, names: Collection[str], where: str) -> None:
        """Raise `UnbraidError` if the column is missing."""
        if self.column not in names:
            raise UnbraidError(f"{where} has no column {self.column!r}: there are {', '.join(map(repr, names))}")

    def check_room(self, names: Collection[str], where: str) -> None:
        """Raise `UnbraidError` if a new column is there already."""
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

    def row(self, output: Any, where: str, seed: int | None = None) -> dict[str, Any]:
        """The values of one row, by column: where it cannot be parsed, none but the reason, with `where` before it.
        Raises `UnbraidError` if a bad row is to end the job."""
        try:
            return self.parse(output, seed)
        except UnbraidError as error:
            return self.bad(f"{where}: {error}")

    def bad(self, reason: str) -> dict[str, Any]:
        """The values of a row that cannot be parsed. Raises `UnbraidError` if it is to end the job."""
        if self.on_error == "fail":
            raise UnbraidError(f"{reason}; --on-error keep or skip goes on without it")
        return {**dict.fromkeys(COLUMNS), ERROR: reason}

    def leaves_out(self, values: Mapping[str, Any]) -> bool:
        """Whether a row with these values is left out."""
        return self.on_error == "skip" and ERROR in values

    def parse(self, output: Any, seed: int | None = None) -> dict[str, Any]:
        """The values of one row, by column. `seed` makes the ids of calls reproducible."""
        if output is None:
            return dict.fromkeys(COLUMNS)
        parser = self.parser(seed)
        if isinstance(output, str):
            parser.feed(output)
        elif is_ids(output):
            if self.tokenizer is None:
                raise UnbraidError(self.wants_tokenizer)
            parser.feed_tokens(output)
        else:
            kind = type(output).__name__
            raise UnbraidError(f"{self.column!r} must hold text or lists of token ids, not {kind}: name another column")
        parser.finish(end_of_turn=self.end_of_turn)
        return values(parser.message)


def is_ids(output: Any) -> TypeGuard[list[int]]:
    """Whether an output is a list of token ids."""
    return isinstance(output, list) and all(isinstance(token, int) for token in output)


def damaged(path: Path, error: Exception) -> UnbraidError:
    """The error for a file that breaks off, or holds what it should not."""
    return UnbraidError(f"{path} cannot be read to its end, it is damaged: {error}. Make it again, or leave it out")


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
    empty: int = 0
    """Rows without an output."""
    bad: int = 0
    """Rows that could not be parsed."""
    with_calls: int = 0
    with_diagnostics: int = 0
    calls: int = 0
    """Calls that are complete."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Incomplete or broken calls, by their diagnostic."""
    reasons: Sequence[str] = ()
    """Why rows could not be parsed: the first few."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> RowCounts:
        kinds = (each["kind"] for row in rows for each in row["diagnostics"] or ())
        reasons = [row[ERROR] for row in rows if row.get(ERROR) is not None]
        return cls(
            len(rows),
            sum(row["content"] is None for row in rows) - len(reasons),
            len(reasons),
            sum(bool(row["tool_calls"]) for row in rows),
            sum(bool(row["diagnostics"]) for row in rows),
            sum(call["complete"] for row in rows for call in row["tool_calls"] or ()),
            dict(Counter(kind for kind in kinds if kind in OF_BROKEN_CALLS)),
            tuple(reasons[:_TOLD]),
        )

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.rows + other.rows,
            self.empty + other.empty,
            self.bad + other.bad,
            self.with_calls + other.with_calls,
            self.with_diagnostics + other.with_diagnostics,
            self.calls + other.calls,
            dict(Counter(self.broken) + Counter(other.broken)),
            (*self.reasons, *other.reasons)[:_TOLD],
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
    source: str = ""
    """The file."""

    @property
    def name(self) -> str:
        """The name of the part's file, unique to its rows."""
        return f"{self.first:012}-{self.rows}"
