"""Several worker processes on one port, `--workers N`.

The parent (`supervisor`) starts the workers. Each has a service of its own and takes connections from the same socket.
A pipe goes from the parent to each (`worker` is its other end): a worker says there that it is ready, and asks for the
metrics of all, which the parent adds up (`totals`).
"""
