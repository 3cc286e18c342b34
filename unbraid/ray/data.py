"""Recorded outputs, taken apart by Ray Data: each row of a dataset gets columns for what its output says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.grammar import Format
from ..datasets.rows import Parsing
from ..parsing import UnknownTools

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset


def parse(
    dataset: Dataset,
    *,
    format: str | Format,
    column: str,
    prefix: str = "",
    tools: Sequence[Mapping[str, Any]] | None = None,
    unknown_tools: UnknownTools = "text",
    tokenizer: object | None = None,
    prompt: str | Sequence[int] | None = None,
    separate_reasoning: bool = True,
    calls_in_reasoning: bool | None = None,
    end_of_turn: bool = False,
    **options: Any,
) -> Dataset:
    """The dataset with the columns `content`, `reasoning`, `tool_calls`, `speech` and `diagnostics`. It is parsed when
    its rows are asked for, where Ray runs it.

    The arguments are those of `unbraid.datasets.rows.Parsing`; `options` go to `Dataset.map_batches`, such as
    `batch_size` or `num_cpus`.
    """
    parsing = Parsing(
        format,
        column,
        prefix,
        tools,
        unknown_tools,
        tokenizer,
        prompt,
        separate_reasoning,
        calls_in_reasoning,
        end_of_turn,
    )
    known = dataset.columns(fetch_if_missing=False)
    if known is not None:
        parsing.check_names(known, "the dataset")
    given = {"batch_format": "pyarrow", "zero_copy_batch": True, "fn_kwargs": {"parsing": parsing}}
    return dataset.map_batches(_parse, **given, **options)


def _parse(table: pa.Table, parsing: Parsing) -> pa.Table:
    from ..datasets.tables import parse_table

    return parse_table(table, parsing)
