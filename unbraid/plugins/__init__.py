"""Plug-ins: unbraid's parsers and constraints inside other engines, vLLM and SGLang.

Both engines call parsers through interfaces that are not public. What each plug-in relies on is a table in its
`hooks.py`, checked when the plug-in is loaded (`hooks.py` here) and in `make test-engines`.
"""
