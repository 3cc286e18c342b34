"""HTTP client for engines that are servers.

    address.py      one server: requests, streamed answers, errors
    sources.py      where the servers are: URLs, names, files, Kubernetes
    connections.py  its connections: how many requests share a pool, how many are opened at a time
    timeouts.py     how long a server may take
    refusals.py     a server's status and text as one of our errors

Every failure is an `EngineError`.
"""
