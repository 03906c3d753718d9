"""The certificate authority of a cluster: the API server's certificate, and those that it signs for kubelets."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = datetime.timedelta(days=365)
# kubeadm's clocks may differ a little.
_SKEW = datetime.timedelta(minutes=5)
_KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class Authority:
    """Its key never leaves the process."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage("digital_signature", "key_encipherment", "key_cert_sign"), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, None)
        )

    @property
    def certificate(self) -> bytes:
        """The CA's certificate as PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_hash(self) -> str:
        """The digest of the public key, as kubeadm pins it."""
        return hash_public_key(self._certificate)

    def issue_server(self, *names: str) -> bytes:
        """Key and certificate of the API server as PEM."""
        key = Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        certificate = (
            self._leaf(subject, key.public_key(), ExtendedKeyUsageOID.SERVER_AUTH)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .sign(self._key, None)
        )
        return private_pem(key) + certificate.public_bytes(Encoding.PEM)

    def sign(self, request: x509.CertificateSigningRequest) -> bytes:
        """Sign a client's request. Returns the certificate as PEM."""
        builder = self._leaf(request.subject, request.public_key(), ExtendedKeyUsageOID.CLIENT_AUTH)
        return builder.sign(self._key, None).public_bytes(Encoding.PEM)

    def _leaf(
        self, subject: x509.Name, key: CertificatePublicKeyTypes, purpose: x509.ObjectIdentifier
    ) -> x509.CertificateBuilder:
        return (
            self._builder(subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def _builder(self, subject: x509.Name, key: CertificatePublicKeyTypes) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _YEAR)
        )


def hash_public_key(certificate: x509.Certificate) -> str:
    """The digest of a certificate's public key (SubjectPublicKeyInfo), as kubeadm writes it."""
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"


def private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_client_request(name: str, organisation: str) -> tuple[Ed25519PrivateKey, bytes]:
    """A new key, and the request for its certificate as PEM."""
    key = Ed25519PrivateKey.generate()
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, None)
    return key, request.public_bytes(Encoding.PEM)


def read_request(pem: bytes) -> x509.CertificateSigningRequest | None:
    """A request for a certificate whose signature is valid."""
    with contextlib.suppress(ValueError, InvalidSignature):
        request = x509.load_pem_x509_csr(pem)
        return request if request.is_signature_valid else None
    return None


def subject_names(subject: x509.Name) -> tuple[str, tuple[str, ...]]:
    """Common name and organisations."""
    names = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(item.value) for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return (names[0] if names else ""), groups


def _usage(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in names for usage in _KEY_USAGES})


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
