"""One TLS context for all of httpx's clients in the tests.

Every client of httpx reads the certificates of all authorities when it is made: 50 ms on a slow core, more than most
tests take besides. What is given to a client (`verify=…`, SSL_CERT_FILE) holds as ever.
"""

from __future__ import annotations

import importlib
import os
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any


def share_certificates() -> None:
    for library in ("httpx", "httpx2"):  # the SDKs of some vendors bring the second
        try:
            transports: Any = importlib.import_module(f"{library}._transports.default")
        except ModuleNotFoundError:
            continue
        transports.create_ssl_context = _shared(transports.create_ssl_context)


def _shared(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    @cache
    def usual(*files: str | None) -> ssl.SSLContext:
        return make()

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert or not trust_env:
            return make(verify=verify, cert=cert, trust_env=trust_env)
        return usual(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    return context
