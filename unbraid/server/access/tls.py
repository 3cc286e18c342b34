"""The certificate that the server shows, read before anything else is loaded, with errors that name the file."""

from __future__ import annotations

import ssl
from pathlib import Path

from ...errors import UnbraidError


def tls_context(
    certificate: str | None,
    key: str | None = None,
    password: str | None = None,
    client_authority: str | None = None,
) -> ssl.SSLContext | None:
    """What TLS needs, or None where no certificate is given. `key` may be in the file of the certificate.
    With `client_authority`, clients must show a certificate that it signed."""
    if certificate is None:
        if key or password or client_authority:
            raise UnbraidError("--tls-key, --tls-key-password and --tls-client-ca need --tls-cert, the certificate")
        return None
    for flag, path in (("--tls-cert", certificate), ("--tls-key", key), ("--tls-client-ca", client_authority)):
        if path is not None:
            _check_readable(flag, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, certificate, key, password)
    if client_authority is not None:
        try:
            context.load_verify_locations(client_authority)
        except (ssl.SSLError, OSError) as error:
            raise UnbraidError(f"--tls-client-ca {client_authority} has no certificate in PEM: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UnbraidError(f"{flag} {path} cannot be read: {error.strerror}") from error


def _load_chain(context: ssl.SSLContext, certificate: str, key: str | None, password: str | None) -> None:
    asked = False

    def answer() -> str:
        """OpenSSL would ask on the terminal."""
        nonlocal asked
        asked = True
        return password or ""

    holder = key or certificate
    try:
        context.load_cert_chain(certificate, key, answer)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            message = f"--tls-key {holder} is not the key of the certificate {certificate}: they must belong together"
        elif asked:
            what = "is not the one of" if password else "is missing for"
            message = f"the password {what} {holder}, which is encrypted: give --tls-key-password"
        elif key is None:
            message = f"--tls-cert {certificate} has no certificate with its key in PEM: give the key as --tls-key"
        else:
            message = f"--tls-cert {certificate} and --tls-key {key} are no certificate and key in PEM: {error}"
        raise UnbraidError(message) from error
