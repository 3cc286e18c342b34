"""WebSockets: what a connection speaks after a request that asks for one. `protocol` is such a connection."""

PATHS = ("/v1/realtime",)
"""Where they are. A request for one elsewhere is answered as if it had not asked."""
