"""A throw-away certificate authority for code signing, and a signer that it certifies. Keys stay in the process."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

if TYPE_CHECKING:
    from collections.abc import Sequence

_YEAR = datetime.timedelta(days=365)
_OIDS = {
    "CN": "2.5.4.3",
    "SN": "2.5.4.4",
    "SERIALNUMBER": "2.5.4.5",
    "C": "2.5.4.6",
    "L": "2.5.4.7",
    "S": "2.5.4.8",
    "STREET": "2.5.4.9",
    "O": "2.5.4.10",
    "OU": "2.5.4.11",
    "T": "2.5.4.12",
    "G": "2.5.4.42",
    "E": "1.2.840.113549.1.9.1",
    "DC": "0.9.2342.19200300.100.1.25",
}


@dataclasses.dataclass(frozen=True)
class CodeSigner:
    """A certificate with its key, and the root above it."""

    certificate: x509.Certificate
    root: x509.Certificate
    key: rsa.RSAPrivateKey

    def sign(self, data: bytes) -> bytes:
        """The signature of the data, with SHA-256."""
        return self.key.sign(data, padding.PKCS1v15(), hashes.SHA256())


class SigningAuthority:
    """A root that certifies code signers. A `name` has the attributes of a subject in the order in which Windows shows
    them: the last one of the certificate first."""

    def __init__(self, name: Sequence[tuple[str, str]]) -> None:
        self._key = _make_key()
        self._name = _name(name)
        public = self._key.public_key()
        self.certificate = (
            _builder(self._name, self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The root's certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def certify(self, name: Sequence[tuple[str, str]]) -> CodeSigner:
        """A new signer with this subject."""
        key = _make_key()
        certificate = (
            _builder(_name(name), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return CodeSigner(certificate, self.certificate, key)

    def revocation_list(self) -> bytes:
        """A CRL in PEM that revokes nothing."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        crl = builder.last_update(now - _YEAR).next_update(now + _YEAR).sign(self._key, hashes.SHA256())
        return crl.public_bytes(Encoding.PEM)


def _make_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    # Long before and after: the clocks of a rehearsal may differ.
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _YEAR).not_valid_after(now + _YEAR)


def _name(attributes: Sequence[tuple[str, str]]) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(x509.ObjectIdentifier(_OIDS.get(kind, kind)), value)
            for kind, value in reversed(attributes)
        ]
    )


def _usage(*allowed: str) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    others = ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: name in allowed for name in (*names, *others)})
