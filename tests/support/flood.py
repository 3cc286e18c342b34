"""Large bodies that are sent again and again, as fast as the server takes them, from a process of its own.

    python -m tests.support.flood PORT NAME CONNECTIONS SECONDS

prints a line when it begins, and at the end how the server answered.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

_CHAT = "/v1/chat/completions"
_HELLO = b'{"messages": [{"role": "user", "content": "Hello!"}], "documents": ['


def _request(body: bytes, type: str = "application/json") -> bytes:
    head = f"POST {_CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


FLOODS: dict[str, Callable[[], bytes]] = {
    "20 MB of small objects": lambda: _request(_HELLO + b'{"a":[]},' * 2_200_000),
    "900 kB that are no JSON": lambda: _request(_HELLO + b'{"a":[]},' * 95_000),
    "20 MB of text, no JSON": lambda: _request(_HELLO + b'"' + b"ab c1! " * 2_900_000),
    "20 MB of another type": lambda: _request(b" " * 20_000_000, "text/plain"),
    "80 MB, more than is taken": lambda: _request(b" " * 80_000_000),
}


def flood(port: int, data: bytes, connections: int, seconds: float) -> Counter[str]:
    """How often the server answered with which status. 0: it did not."""
    end = time.monotonic() + seconds
    seen: Counter[str] = Counter()

    def one() -> None:
        while time.monotonic() < end:
            with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
                with suppress(OSError):  # the server may have heard enough
                    client.sendall(data)
                try:
                    seen[client.recv(12)[9:12].decode() or "0"] += 1
                except OSError:
                    seen["0"] += 1

    threads = [threading.Thread(target=one) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def main(port: str, name: str, connections: str, seconds: str) -> None:
    os.nice(5)  # a real attacker has a machine of its own
    data = FLOODS[name]()
    print(name, flush=True)
    print(json.dumps(flood(int(port), data, int(connections), float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
