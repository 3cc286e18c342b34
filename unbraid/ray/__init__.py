"""unbraid on Ray: the server as an application of Ray Serve, and recorded outputs parsed by Ray Data.

    application.py  settings to deployments; the deployment of the API
    replicas.py     the deployments of the engines: what runs in their processes
    engine.py       an engine, and a speech model, whose replicas are behind a handle of Ray Serve
    wire.py         what travels between them: requests, tokens, errors
    running.py      `unbraid serve --ray`

Routing, health, scaling and rollout are Ray's. Token ids travel between the processes, never text that is tokenized
again. `import ray` in here is the real package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.grammar import Format
from ..datasets.rows import OnError, Parsing
from ..parsing import UnknownTools

if TYPE_CHECKING:
    import pyarrow as pa
    from ray.data import Dataset
    from ray.serve import Application

__all__ = ["app", "parse"]


def app(arguments: Mapping[str, Any]) -> Application:
    """The application, for `serve run unbraid.ray:app` and for `import_path` in a configuration of Ray Serve.

    arguments: settings by name, as in a file for `unbraid serve --config`; `config` names such a file. They win over
        the environment (`UNBRAID_MODEL` and so on).
    """
    from ..server.settings_sources import settings_of
    from .application import build

    return build(settings_of(arguments))


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
    on_error: OnError = "keep",
    **options: Any,
) -> Dataset:
    """The dataset with the columns `content`, `reasoning`, `tool_calls`, `speech`, `diagnostics`
    and `error`. It is parsed when its rows are asked for, where Ray runs it.

    The arguments are those of `unbraid.datasets.rows.Parsing`. `options` go to `Dataset.map_batches`: `batch_size`,
    `num_cpus` and so on.
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
        on_error,
    )
    columns = dataset.columns(fetch_if_missing=False)
    if columns is not None:
        parsing.check_names(columns, "the dataset")
    arrow = {"batch_format": "pyarrow", "zero_copy_batch": True, "fn_kwargs": {"parsing": parsing}}
    return dataset.map_batches(_parse, **arrow, **options)


def _parse(table: pa.Table, parsing: Parsing) -> pa.Table:
    from ..datasets.parquet import parse_table

    return parse_table(table, parsing)
