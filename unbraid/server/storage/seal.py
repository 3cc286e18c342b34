"""Seals: texts that clients keep for us between requests, and that only we can read or vouch for.

Reasoning goes to clients that keep no state here and comes back with the next turn: in Responses as
`encrypted_content`, in Messages as text with a signature. Both are bound to the API key, so that one client's are worth
nothing to another. The secret is the store's where there is one, so a server that starts again knows its seals.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # signing needs none of it
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
        """What shows that the text came from us."""
        return base64.b64encode(self._digest(b"sign", client, text)).decode()

    def verify(self, text: str, signature: str, client: str) -> bool:
        return hmac.compare_digest(self.sign(text, client).encode(), signature.encode("utf-8", "surrogatepass"))

    def key(self, purpose: str, client: str) -> bytes:
        """A key for what has a way of its own to be signed."""
        return self._digest(purpose.encode(), client, "")

    def _box(self, client: str) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(base64.urlsafe_b64encode(self._digest(b"seal", client, "")))

    def _digest(self, purpose: bytes, client: str, text: str) -> bytes:
        parts = (purpose, client.encode(), text.encode("utf-8", "surrogatepass"))
        return hmac.digest(self._secret, b"\0".join(hashlib.sha256(part).digest() for part in parts), "sha256")
