"""Seals: what clients keep for us between requests, and only we can read or vouch for.

*Reasoning* goes to clients that keep no state here and comes back with the next request: in Responses as
`encrypted_content`, in Messages as text with a signature. Both are bound to the API key, so that one client's are worth
nothing to another. The secret is the store's if there is one, so a server that starts again knows its seals.

*Streams.* A gateway that has its streams parsed here sends each chunk as a request of its own, to whichever process
answers. So all that the next one has to know travels with the chunk: the parser's state (`core.machine.snapshot`),
signed. Only what we have signed for the same client is loaded into a parser: a state cannot be made up, and what is
loaded is sound. The process that has sealed a state remembers it for a while: if the next chunk comes here too, there
is nothing to verify and nothing to read. That is a short cut and no more: another process comes to the same.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ...caching import LruCache
from ...core.machine.snapshot import encode, encode_object

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


class Seal:
    """Seals and signs texts with one secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def close(self, text: str, client: str) -> str:
        """The text, so that nobody but us can read it."""
        return self._box(client).encrypt(text.encode("utf-8", "surrogatepass")).decode()

    def open(self, sealed: str, client: str) -> str | None:
        """The text of `close`; None where it is not ours, or of another client."""
        from cryptography.fernet import InvalidToken

        try:
            return self._box(client).decrypt(sealed.encode()).decode("utf-8", "surrogatepass")
        except (InvalidToken, UnicodeEncodeError):
            return None

    def sign(self, text: str, client: str) -> str:
        """A signature that shows that the text came from us."""
        return base64.b64encode(self._digest(b"sign", client, text)).decode()

    def verify(self, text: str, signature: str, client: str) -> bool:
        return hmac.compare_digest(self.sign(text, client).encode(), signature.encode("utf-8", "surrogatepass"))

    def key(self, purpose: str, client: str) -> bytes:
        """A key for data that is signed in another way."""
        return self._digest(purpose.encode(), client, "")

    def _box(self, client: str) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(base64.urlsafe_b64encode(self._digest(b"seal", client, "")))

    def _digest(self, purpose: bytes, client: str, text: str) -> bytes:
        parts = (purpose, client.encode(), text.encode("utf-8", "surrogatepass"))
        return hmac.digest(self._secret, b"\0".join(hashlib.sha256(part).digest() for part in parts), "sha256")


_SIGNATURE = 16
_pack = msgspec.msgpack.Encoder(enc_hook=encode_object).encode
_unpack = msgspec.msgpack.Decoder().decode
_AS_JSON = b"\xc1"
"""The first byte of a state in JSON. MessagePack never uses this byte."""


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
