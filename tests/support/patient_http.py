"""httpx's functions with a limit that only a fault reaches; its own is five seconds."""

from __future__ import annotations

from functools import partial

import httpx

from .waiting import PATIENCE

get = partial(httpx.get, timeout=PATIENCE)
post = partial(httpx.post, timeout=PATIENCE)
delete = partial(httpx.delete, timeout=PATIENCE)
options = partial(httpx.options, timeout=PATIENCE)
request = partial(httpx.request, timeout=PATIENCE)
