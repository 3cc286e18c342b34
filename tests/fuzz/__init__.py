"""Fuzzing: `make fuzz`, or `python -m tests.fuzz`.

A target (`targets/`) is a function that takes bytes and raises where a law or a promise is broken. `__main__.py` is the
command, `search.py` has the fuzzers: atheris, which follows what new code an input reaches, and plain chance where it
is not installed. `test_targets.py` runs every target a little with the other tests; `test_finds.py` keeps what was
found.
"""
