"""Runs the application: `run.run` is what `unbraid serve` calls.

    run.py         opens the port, loads the service, and serves, to an orderly end
    supervisor.py  `--workers N`: the parent of several processes that take connections from the same socket

Ray has its own way to run the application (`unbraid.ray`).
"""
