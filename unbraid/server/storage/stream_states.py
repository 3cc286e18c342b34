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
import json
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from ...core.machine.snapshot import encode, encode_object
from .seal import Seal

T = TypeVar("T")
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


class StreamStates(Generic[T]):
    """Seals states and opens them again.

    most: how many of what stands at a state are kept in this process.
    """

    def __init__(self, seal: Seal, most: int) -> None:
        self._signer = lru_cache(256)(
            lambda client: hashlib.blake2b(key=seal.key("stream state", client), digest_size=_SIGNATURE)
        )
        self._most = most
        self._at_hand: OrderedDict[tuple[str, str], T] = OrderedDict()

    def close(self, state: Any, client: str) -> str:
        """A state as a text that only we can have written."""
        packed = _pack(state)
        return b2a_base64(self._sign(packed, client) + packed, newline=False).decode()

    def open(self, sealed: str, client: str) -> Any:
        """The state of `close`; None where it is not ours, or of another client."""
        try:
            data = a2b_base64(sealed)
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
        signer = self._signer(client).copy()
        signer.update(packed)
        return signer.digest()
