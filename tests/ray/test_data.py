"""Ray Data: the same columns as anywhere, by the processes of a cluster."""

from __future__ import annotations

import pytest

from unbraid import UnbraidError
from unbraid.datasets.rows import Parsing
from unbraid.ray import parse

from .cluster import only_ray

pytestmark = pytest.mark.system

pytest.importorskip("ray.data", reason="Ray is not installed: pip install 'unbraid[ray]'")

OUTPUT = '<think>\nRow {}.\n</think>\n\nAnswer {}.\n<tool_call>\n{{"name": "f", "arguments": {{}}}}\n</tool_call>'


def test_a_dataset_gets_the_columns() -> None:
    import pyarrow as pa
    import ray

    from unbraid.datasets.parquet import parse_table

    table = pa.table({"n": list(range(100)), "output": [OUTPUT.format(n, n) for n in range(100)]})
    with only_ray():
        dataset = ray.data.from_arrow(table)
        with pytest.raises(UnbraidError, match="no column 'text'"):
            parse(dataset, format="qwen3", column="text")
        rows = parse(dataset, format="qwen3", column="output", batch_size=10).take_all()
    expected = parse_table(table, Parsing("qwen3", "output")).to_pylist()
    for row in (*rows, *expected):
        assert row["tool_calls"][0].pop("id")
    assert sorted(rows, key=lambda row: int(row["n"])) == expected
