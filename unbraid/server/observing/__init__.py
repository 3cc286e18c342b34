"""What can be seen of a server that runs: logs, request ids, traces, metrics.

    exchange.py    one request and its reply, with its id: what is known of it now, for whoever asks
    middleware.py  makes an exchange for each request, and reports it at the end
    logs.py        log lines as text or JSON; the fields of the access line
    metrics.py     Prometheus: requests, tokens, engines, replicas; totals of several processes
    tracing.py     spans and tracers, and the trace that a request belongs to, as W3C's headers say it
    spans.py       what the spans of requests and engines are told
    otel.py        the spans of OpenTelemetry

Nothing here is done for each chunk of a stream. A request costs a few dozen microseconds.
"""
