"""`unbraid serve --ray`: the application in a cluster of Ray, until a signal ends it.

The cluster is the one that `RAY_ADDRESS` names, or a new one on this machine that ends with the command.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType

import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from ..errors import UnbraidError
from ..server.access.door import access_of
from ..server.app import write_error
from ..server.running.run import open_port
from ..server.settings import Settings
from ..version import __version__
from .application import API, GRACE, build

_log = logging.getLogger(__name__)
_NAME = "unbraid"


def run(settings: Settings) -> int:
    """Serve until a signal ends it."""
    if settings.port == 0:
        raise UnbraidError("on Ray, the port cannot be chosen by the system: give --port")
    build(settings)  # raises for settings that Ray cannot serve
    access_of(settings, write_error)  # raises for a wrong certificate before anything starts,
    if "RAY_ADDRESS" not in os.environ:
        open_port(settings.host, settings.port).close()  # and this for a port that is taken
    wait = _Until()
    ray.init(include_dashboard=False, logging_level=logging.WARNING)
    # After Ray's, which would end the process at once.
    before = {number: signal.signal(number, wait.end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with suppress(KeyboardInterrupt):
            _start(settings, build(settings))  # now the cluster is known
            wait.for_a_signal()
        with suppress(KeyboardInterrupt):
            _end(settings.shutdown_seconds + GRACE)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ray.shutdown()
    return 0


class _Until:
    """Waits for a signal. An earlier signal breaks off the start, and a second one the end: both may take long, since
    models are loaded, or streams end."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._waits = False

    def end(self, number: int, frame: FrameType | None) -> None:
        first = not self._ended.is_set()
        self._ended.set()
        if not (self._waits and first):
            raise KeyboardInterrupt

    def for_a_signal(self) -> None:
        self._waits = True
        self._ended.wait()


def _start(settings: Settings, application: serve.Application) -> None:
    has_port = bool(serve.status().proxies)  # in a cluster where Ray Serve runs already
    if not has_port:
        _open(settings)
    try:
        serve.run(application, name=_NAME, route_prefix="/")
    except RuntimeError as error:
        raise UnbraidError(f"Ray did not start it: {_reason() or error}") from error
    scheme = "https" if settings.tls_cert else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    where = "where Ray Serve listens already" if has_port else f"at {scheme}://{host}:{settings.port}/v1"
    print(f"unbraid {__version__}: ready on Ray {where}", flush=True)


def _open(settings: Settings) -> None:
    """Start Ray Serve, which has the port."""
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


def _end(patience: float) -> None:
    """Let streams end, and take the application out of a cluster that stays."""
    latest = time.monotonic() + patience
    with suppress(RayServeException):  # it was not there yet
        while time.monotonic() < latest:
            with suppress(TimeoutError):  # after a minute, whatever the deployments may take
                serve.delete(_NAME)
                return


def _reason() -> str:
    """Why the application was not started: the last line from a failed engine, or else from the API."""
    deployments = serve.status().applications[_NAME].deployments
    failed = [name for name, each in deployments.items() if each.status == "DEPLOY_FAILED"]
    lines = deployments[min(failed, key=lambda name: name == API)].message.split("\n") if failed else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
