"""Where a parser stands in a stream, kept by the client between two requests.

A gateway that has its streams parsed here sends each chunk as a request of its own, to whichever process answers. So
all that the next one has to know travels with the chunk: the parser's state (`core.machine.snapshot`), signed. Only
what we have signed for the same client is loaded into a parser: a state cannot be made up, and what is loaded is sound.

The process that has sealed a state remembers it for a while: if the next chunk comes here too, there is nothing to
verify and nothing to read. That is a short cut and no more: another process comes to the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import lru_cache
from typing import Any

import msgspec

from ...caching import LruCache
from ...core.machine.snapshot import encode, encode_object
from .seal import Seal

_SIGNATURE = 16
_pack = msgspec.msgpack.Encoder(enc_hook=encode_object).encode
_unpack = msgspec.msgpack.Decoder().decode
_AS_JSON = b"\xc1"
"""What a state begins with that is JSON. No other can: MessagePack has no use for this byte."""


def pack(state: Any) -> bytes:
    """A state of a parser as bytes. Where a part of a marker waits, the characters that stand for its tokens are such
    as UTF-8 does not have; JSON escapes them."""
    try:
        return _pack(state)
    except UnicodeEncodeError:
        return _AS_JSON + json.dumps(encode(state), separators=(",", ":")).encode()


def unpack(packed: bytes) -> Any:
    """The state of `pack`."""
    return json.loads(packed[1:]) if packed.startswith(_AS_JSON) else _unpack(packed)


class StreamStates:
    """Seals states and opens them again.

    most: how many are remembered in this process.
    """

    def __init__(self, seal: Seal, most: int) -> None:
        self._signer = lru_cache(256)(
            lambda client: hashlib.blake2b(key=seal.key("stream state", client), digest_size=_SIGNATURE)
        )
        self._recent: LruCache[tuple[str, bytes], Any] = LruCache(most)

    def close(self, state: Any, client: str) -> bytes:
        """A state as bytes that only we can have written. What it consists of must not change any more."""
        packed = _pack(state)
        sealed = self._sign(packed, client) + packed
        self._recent[client, sealed] = state
        return sealed

    def open(self, sealed: bytes, client: str) -> Any:
        """The state of `close`; None where it is not ours, or of another client."""
        state = self._recent.pop((client, sealed))
        if state is not None:
            return state
        packed = sealed[_SIGNATURE:]
        if not hmac.compare_digest(sealed[:_SIGNATURE], self._sign(packed, client)):
            return None
        return _unpack(packed)

    def _sign(self, packed: bytes, client: str) -> bytes:
        signer = self._signer(client).copy()
        signer.update(packed)
        return signer.digest()
