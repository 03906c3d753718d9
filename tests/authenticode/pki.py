"""Throw-away certificates for signing code: roots, CAs, signers, timestamp authorities and CRLs, with fixed dates."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from typing import TYPE_CHECKING, Any

from asn1crypto import algos
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from imagegen.authenticode.certificates import read_certificate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.authenticode.model import Certificate

CODE = ExtendedKeyUsageOID.CODE_SIGNING
STAMP = ExtendedKeyUsageOID.TIME_STAMPING
LIFETIME = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.13")
_TYPES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "S": NameOID.STATE_OR_PROVINCE_NAME,
}
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
# Before it nothing is valid, and after it nothing but the roots.
START = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
STAMPED = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
LATER = datetime.datetime(2028, 6, 1, tzinfo=datetime.UTC)

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclasses.dataclass(frozen=True)
class Identity:
    """A certificate with its key, and the one that issued it (None: itself)."""

    certificate: x509.Certificate
    key: Key
    issuer: Identity | None

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def read(self) -> Certificate:
        return read_certificate(self.der)

    @property
    def chain(self) -> list[Identity]:
        """This one, and those above it."""
        return [self, *(self.issuer.chain if self.issuer else [])]


@functools.cache
def rsa_key(number: int = 0, size: int = 2048) -> rsa.RSAPrivateKey:
    """A key for tests that need one. Making it takes long."""
    del number
    return rsa.generate_private_key(public_exponent=65537, key_size=size)


def make_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def make_name(text: str) -> x509.Name:
    """`C=US, O=Example, CN=Example Code`: the order of the certificate, which Windows shows the other way round."""
    parts = [part.split("=", 1) for part in text.split(", ")]
    return x509.Name([x509.NameAttribute(_TYPES[kind], value) for kind, value in parts])


def issue(
    name: str,
    issuer: Identity | None = None,
    *,
    key: Key | None = None,
    usages: Sequence[x509.ObjectIdentifier] = (),
    key_usages: Sequence[str] | None = None,
    ca: bool | None = None,
    longest_path: int | None = None,
    valid: tuple[datetime.datetime, datetime.datetime] = (START, END),
    extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
    serial: int = 0,
    digest: hashes.HashAlgorithm | None = None,
) -> Identity:
    """A certificate. Without an issuer it signs itself."""
    key = key or make_key()
    subject = make_name(name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(authority, critical=False)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca, longest_path if ca else None), critical=True)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=STAMP in usages)
    if key_usages is not None:
        chosen: dict[str, Any] = {usage: usage in key_usages for usage in _USAGES}
        builder = builder.add_extension(x509.KeyUsage(**chosen), critical=True)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    certificate = builder.sign((issuer or Identity(None, key, None)).key, digest or hashes.SHA256())  # type: ignore[arg-type]  # only the key is used
    return Identity(certificate, key, issuer)


def make_root(name: str = "O=Example, CN=Example Root", **options: Any) -> Identity:  # noqa: ANN401 - those of `issue`
    valid = (START - datetime.timedelta(days=3650), END + datetime.timedelta(days=3650))
    return issue(name, **{"ca": True, "key_usages": ["key_cert_sign", "crl_sign"], "valid": valid, **options})


def make_ca(root: Identity, name: str = "O=Example, CN=Example Code CA", **options: Any) -> Identity:  # noqa: ANN401
    return issue(name, root, **{"ca": True, "key_usages": ["key_cert_sign", "crl_sign"], **options})


def make_signer(ca: Identity, name: str = "C=US, O=Example Inc, CN=Example Inc", **options: Any) -> Identity:  # noqa: ANN401
    return issue(name, ca, **{"usages": [CODE], "key_usages": ["digital_signature"], **options})


def make_authority(root: Identity, name: str = "O=Example, CN=Example Clock", **options: Any) -> Identity:  # noqa: ANN401
    return issue(name, root, **{"usages": [STAMP], "key_usages": ["digital_signature"], **options})


def with_digest(identity: Identity, name: str) -> Identity:
    """The certificate signed again, with MD5 or SHA-1, which the program that makes the others refuses. Its issuer
    needs RSA."""
    assert identity.issuer
    assert isinstance(identity.issuer.key, rsa.RSAPrivateKey)
    changed = asn1_x509.Certificate.load(identity.der)
    algorithm = algos.SignedDigestAlgorithm({"algorithm": f"{name}_rsa"})
    changed["tbs_certificate"]["signature"] = algorithm
    changed["signature_algorithm"] = algorithm
    signed = changed["tbs_certificate"].dump(force=True)
    digest = hashes.MD5() if name == "md5" else hashes.SHA1()  # noqa: S303 - to see how they are judged
    changed["signature_value"] = identity.issuer.key.sign(signed, padding.PKCS1v15(), digest)
    return Identity(x509.load_der_x509_certificate(changed.dump(force=True)), identity.key, identity.issuer)


def make_crl(
    issuer: Identity,
    revoked: Sequence[tuple[Identity, datetime.datetime, x509.ReasonFlags | None]] = (),
    *,
    key: Key | None = None,
    key_id_of: Identity | None = None,
    until: datetime.datetime = END,
) -> bytes:
    """A CRL in PEM."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(START)
        .next_update(until)
    )
    if key_id_of:
        key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(key_id_of.key.public_key())
        builder = builder.add_extension(key_id, critical=False)
    for identity, since, reason in revoked:
        row = x509.RevokedCertificateBuilder().serial_number(identity.certificate.serial_number).revocation_date(since)
        if reason:
            row = row.add_extension(x509.CRLReason(reason), critical=False)
        builder = builder.add_revoked_certificate(row.build())
    return builder.sign(key or issuer.key, hashes.SHA256()).public_bytes(Encoding.PEM)


@dataclasses.dataclass(frozen=True)
class Pki:
    """What most tests need."""

    root: Identity
    ca: Identity
    signer: Identity
    clock_root: Identity
    clock: Identity


@functools.cache
def pki() -> Pki:
    root, clock_root = make_root(), make_root("O=Example, CN=Example Clock Root")
    ca = make_ca(root)
    return Pki(root, ca, make_signer(ca), clock_root, make_authority(clock_root))
