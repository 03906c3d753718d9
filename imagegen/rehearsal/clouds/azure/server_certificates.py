"""The certificates that Azure's wireserver gives to a machine: those of a key vault that its creator named.

Azure reads them from the vault (`osProfile.secrets` of a machine), packs them into one PFX without a password, and
encrypts that for a certificate of the machine's agent, whose key never leaves the machine. Sources, read 2026-11-19:
* WALinuxAgent, `common/protocol/goal_state.py`, with its tests and their recorded answers: the headers, the two ciphers
  with the newer one first, status 400 for another one, the form of the answer; its README: a `StoredCertificate`;
* cloudbase-init 1.1.8, `azureservice.py`: it sends no `x-ms-cipher-name`, and Azure answers all the same.
Which cipher Azure takes then is not known: the stand-in takes the newer one. The words of its errors are its own.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import quoteattr

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from imagegen.rehearsal.boot.given_certificates import find_thumbprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.model import GivenCertificate

_TRANSPORT: Final = "x-ms-guest-agent-public-x509-cert"
_CIPHER: Final = "x-ms-cipher-name"
_AES: Final = "AES128_CBC"
# Which `cryptography` does not encrypt messages with.
_OLDER: Final = "DES_EDE3_CBC"
_VERSION: Final = "2010-12-15"


class UnknownToStandIn(Exception):
    """Azure answers this, and the stand-in cannot."""


def describe(certificates: Sequence[GivenCertificate]) -> str:
    """The element of the hosting environment that lists them."""
    rows = [
        f'<StoredCertificate name={quoteattr(f"Stored{number}{one.name}")} certificateId="sha1:{find_thumbprint(one)}" '
        f'storeName={quoteattr(one.store)} configurationLevel="System" />'
        for number, one in enumerate(certificates)
    ]
    return f"<StoredCertificates>{''.join(rows)}</StoredCertificates>" if rows else "<StoredCertificates />"


def answer(certificates: Sequence[GivenCertificate], headers: Mapping[str, str], incarnation: str) -> str:
    """The file with the certificates, which only the sender of the request can read. ValueError if Azure refuses it."""
    transport = _read_transport(headers.get(_TRANSPORT, ""))
    cipher = headers.get(_CIPHER, _AES)
    if cipher not in (_AES, _OLDER):
        raise ValueError(f"unsupported cipher {cipher!r}")
    if cipher == _OLDER:
        raise UnknownToStandIn(f"the stand-in of the wireserver cannot encrypt with {_OLDER}")
    if len(certificates) != 1:
        raise UnknownToStandIn(f"the stand-in of the wireserver packs 1 certificate, not {len(certificates)}")
    message = (
        pkcs7.PKCS7EnvelopeBuilder()
        .set_data(certificates[0].pfx)
        .add_recipient(transport)
        .set_content_encryption_algorithm(algorithms.AES128)
        .encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])
    )
    return (
        '<CertificateFile xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:noNamespaceSchemaLocation="certificates10.xsd"><Version>{_VERSION}</Version>'
        f"<Incarnation>{incarnation}</Incarnation><Format>Pkcs7BlobWithPfxContents</Format>"
        f"<Data>{base64.encodebytes(message).decode('ascii')}</Data></CertificateFile>"
    )


def _read_transport(header: str) -> x509.Certificate:
    if not header:
        raise ValueError(f"the header {_TRANSPORT} is missing: there is no certificate to encrypt for")
    try:
        found = x509.load_der_x509_certificate(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the header {_TRANSPORT} is no certificate in base64: {error}") from error
    if not isinstance(found.public_key(), rsa.RSAPublicKey):
        raise ValueError(f"the certificate in {_TRANSPORT} has no RSA key")
    return found
