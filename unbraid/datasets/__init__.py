"""Datasets of recorded outputs, taken apart: each row gets columns for what its output says.

    rows.py        one output to its values; the options
    tables.py      Arrow tables: the primitive that Ray Data uses as it is
    parquet.py     files of Parquet, read and written in parts
    row_groups.py  such files put together without decoding them
    jsonl.py       files of JSON lines, likewise
    part.py        a part of a file
    job.py         files and folders: parts that are kept, put together in the end; what can be resumed
    workers.py     the processes that parse

Nothing is lost: all columns stay, the raw output too. The core knows nothing of this package.
"""

from __future__ import annotations
