"""Datasets of recorded outputs, parsed: each row gets columns for the parts of its output.

    rows.py        one output to its values; the options; a part of a file
    parquet.py     Arrow tables, and files of Parquet in parts
    row_groups.py  files of Parquet concatenated without decoding them
    jsonl.py       files of JSON lines in parts
    job.py         files and folders: parts, worker processes, resuming

Nothing is lost: all columns stay, the raw output too. Ray Data calls `parquet.parse_table` for its batches.
"""
