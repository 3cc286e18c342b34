"""vLLM as an engine.

    server.py  vLLM's server, over HTTP
    local.py   vLLM inside this process

Both take and give token ids.
"""
