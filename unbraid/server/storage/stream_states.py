"""Where a parser stands in a stream, kept by the client between two requests.

A gateway that has its streams parsed here sends each chunk as a request of its own, to whichever process answers. So
all that the next one has to know travels with the chunk: the parser's state (`core.machine.snapshot`), signed. Only
what we have signed for the same client is loaded into a parser: a state cannot be made up, and what is loaded is sound.

The process that has sealed a state keeps the parser that stands there, for a while. If the next chunk comes here too,
there is nothing to read and nothing to load. That is a short cut and no more: another process comes to the same.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from ...core.machine.snapshot import encode_object
from .seal import Seal

T = TypeVar("T")
_SIGNATURE = 16
_pack = msgspec.msgpack.Encoder(enc_hook=encode_object).encode
_unpack = msgspec.msgpack.Decoder().decode


class StreamStates(Generic[T]):
    """Seals states and opens them again.

    most: how many of what stands at a state are kept in this process.
    """

    def __init__(self, seal: Seal, most: int = 1024) -> None:
        self._key = lru_cache(256)(lambda client: seal.key("stream state", client))
        self._most = most
        self._at_hand: OrderedDict[tuple[str, str], T] = OrderedDict()

    def close(self, state: Any, client: str) -> str:
        """A state as a text that only we can have written."""
        packed = _pack(state)
        return urlsafe_b64encode(self._sign(packed, client) + packed).decode()

    def open(self, sealed: str, client: str) -> Any:
        """The state of `close`; None where it is not ours, or of another client."""
        try:
            data = urlsafe_b64decode(sealed.encode("ascii"))
        except ValueError:
            return None
        packed = data[_SIGNATURE:]
        if not hmac.compare_digest(data[:_SIGNATURE], self._sign(packed, client)):
            return None
        return _unpack(packed)

    def take(self, sealed: str, client: str) -> T | None:
        """What stands at this state, if this process has it. It is nobody else's then."""
        return self._at_hand.pop((client, sealed), None)

    def keep(self, sealed: str, client: str, what: T) -> T | None:
        """Keep what stands at this state. What has to make room for it is returned."""
        self._at_hand[client, sealed] = what
        return self._at_hand.popitem(last=False)[1] if len(self._at_hand) > self._most else None

    def _sign(self, packed: bytes, client: str) -> bytes:
        return hashlib.blake2b(packed, key=self._key(client), digest_size=_SIGNATURE).digest()
