"""Plug-ins: unbraid's parsers and constraints inside other engines, vLLM and SGLang.

    vllm/             the plug-in for vLLM
    sglang/           the plug-in for SGLang
    hooks.py          what a plug-in relies on in its engine, checked at start
    common.py         what both plug-ins need to read requests and responses
    checked_calls.py  calls whose arguments an operator wants checked
    self_test.py      a few replies for an engine of a version that was not tested
    fast_models.py    the engines' messages, made without validation

Both engines call parsers through interfaces that are not public. The `hooks.py` of each plug-in lists what it relies
on; the list is checked when the plug-in is loaded, and in `make test-engines`.
"""
