"""Certificates that are made for a test, and clients that trust them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Certificate:
    """A certificate that signed itself, for 127.0.0.1, in files."""

    certificate: str
    key: str
    locked_key: str
    both: str


def make(folder: Path) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "unbraid's tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    shown = certificate.public_bytes(pem)
    secret = key.private_bytes(pem, form, serialization.NoEncryption())
    locked = key.private_bytes(pem, form, serialization.BestAvailableEncryption(b"word"))
    contents = {"cert.pem": shown, "key.pem": secret, "locked.pem": locked, "both.pem": shown + secret}
    for file, data in contents.items():
        (folder / file).write_bytes(data)
    return Certificate(*(str(folder / file) for file in contents))


def trusting(certificate: Certificate, shown: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate.certificate)
    if shown is not None:
        context.load_cert_chain(shown.both)
    return context
