"""Certificates with their keys, as a key vault has them, and as an agent makes one for a moment."""

from __future__ import annotations

import dataclasses
import datetime
import functools

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, pkcs12
from cryptography.x509.oid import NameOID

from imagegen.rehearsal.boot.model import GivenCertificate


@dataclasses.dataclass(frozen=True)
class Made:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def thumbprint(self) -> str:
        return self.certificate.fingerprint(hashes.SHA1()).hex().upper()  # noqa: S303 - as Windows names certificates

    def pfx(self, password: str = "") -> bytes:
        hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return pkcs12.serialize_key_and_certificates(b"friendly", self.key, self.certificate, None, hidden)


@functools.cache
def make(name: str) -> Made:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return Made(_sign(name, key), key)


def make_elliptic(name: str) -> bytes:
    """The DER of a certificate with a key that is not RSA's."""
    return _sign(name, ec.generate_private_key(ec.SECP256R1())).public_bytes(Encoding.DER)


def given(name: str = "web", store: str = "My") -> GivenCertificate:
    return GivenCertificate(name, _pfx(name), store)


# Two PFX of the same certificate differ.
@functools.cache
def _pfx(name: str) -> bytes:
    return make(name).pfx()


def _sign(name: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
