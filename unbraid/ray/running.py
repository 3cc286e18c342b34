"""`unbraid serve --ray`: the application in a cluster of Ray, until a signal ends it.

The cluster is the one that `RAY_ADDRESS` names, or a new one on this machine that ends with the command.
"""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

import ray
from ray import serve

from ..errors import UnbraidError
from ..server.access.door import access_of
from ..server.app import write_error
from ..server.settings import Settings
from ..version import __version__
from .application import build

_log = logging.getLogger(__name__)
_NAME = "unbraid"


def run(settings: Settings) -> int:
    """Serve until a signal ends it."""
    if settings.port == 0:
        raise UnbraidError("on Ray, the port cannot be chosen by the system: give --port")
    application = build(settings)
    access_of(settings, write_error)  # a certificate that is wrong is told before anything starts
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    ray.init(include_dashboard=False, logging_level=logging.WARNING)
    # After Ray's, which would end the process at once.
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        serve.start(
            http_options=serve.HTTPOptions(
                host=settings.host,
                port=settings.port,
                keep_alive_timeout_s=round(settings.keep_alive_seconds),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key or settings.tls_cert,
                ssl_keyfile_password=settings.tls_key_password,
                ssl_ca_certs=settings.tls_client_ca,
            )
        )
        serve.run(application, name=_NAME, route_prefix="/")
        scheme = "https" if settings.tls_cert else "http"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        print(f"unbraid {__version__}: ready on Ray at {scheme}://{host}:{settings.port}/v1", flush=True)
        ended.wait()
        serve.delete(_NAME)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ray.shutdown()
    return 0
