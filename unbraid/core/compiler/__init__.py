"""Compiles a format to what the machine runs: a `Program`.

It is made once for each format and vocabulary:

    compiler.py    markers to search patterns, one set for each scope
    calls.py       a grammar of calls to steps
    prompt_end.py  where the output starts: what the end of the prompt leaves open
"""
