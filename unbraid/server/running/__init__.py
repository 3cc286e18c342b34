"""Runs the application: `run` is what `unbraid serve` calls.

One process serves on a `port` with uvicorn (`graceful`). With `--workers N` the parent (`supervisor`) starts several,
which take connections from the same socket. A pipe goes from the parent to each (`worker` is its other end): a worker
says there that it is ready, and asks for the metrics of all, which the parent adds up (`totals`).
"""
