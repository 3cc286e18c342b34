"""What can be seen of a server that runs: logs, request ids, traces, metrics.

    exchange.py       one request and its reply: what is known of it now, for whoever asks
    middleware.py     makes one for each request, and tells of it at the end
    request_ids.py    the id of a request, taken from the client or made
    trace_context.py  the trace that a request belongs to, as W3C's headers say it
    spans.py          what spans are; request_spans.py: that of a request; otel.py: OpenTelemetry
    logs.py           log lines as text or JSON
    metrics.py        Prometheus; replica_metrics.py has those of each replica

Nothing here is done for each chunk of a stream. A request costs a few dozen microseconds.
"""
