"""The PKCS #7 signature of a file's digest (Microsoft: Windows Authenticode Portable Executable Signature Format)."""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding

from imagegen.rehearsal.signing.der import NULL, encode, identifier, integer, octets, sequence, set_of, tagged

if TYPE_CHECKING:
    from imagegen.rehearsal.signing.authority import CodeSigner

_SIGNED_DATA = "1.2.840.113549.1.7.2"
_INDIRECT_DATA = "1.3.6.1.4.1.311.2.1.4"
_PE_IMAGE_DATA = "1.3.6.1.4.1.311.2.1.15"
_SIP_INFO = "1.3.6.1.4.1.311.2.1.30"
_OPUS_INFO = "1.3.6.1.4.1.311.2.1.12"
_CONTENT_TYPE = "1.2.840.113549.1.9.3"
_MESSAGE_DIGEST = "1.2.840.113549.1.9.4"
_SHA256 = sequence(identifier("2.16.840.1.101.3.4.2.1"), NULL)
_RSA = sequence(identifier("1.2.840.113549.1.1.1"), NULL)


@dataclasses.dataclass(frozen=True)
class SignedForm:
    """How a signature calls a form of file: the encoded type and value of the signed content."""

    encoded: bytes


def _sip(version: int, guid: str) -> SignedForm:
    """A form that a subject interface package of Windows knows."""
    info = sequence(integer(version), octets(uuid.UUID(guid).bytes_le), *[integer(0)] * 5)
    return SignedForm(sequence(identifier(_SIP_INFO), info))


# The flags are an empty BIT STRING, and the file is a link to nothing.
PE = SignedForm(
    sequence(
        identifier(_PE_IMAGE_DATA),
        sequence(encode(0x03, b"\x00"), tagged(0, tagged(2, tagged(0, b"", constructed=False)))),
    )
)
MSI = _sip(1, "000c10f1-0000-0000-c000-000000000046")
SCRIPT = _sip(0x10000, "603bcc1f-4b59-4e08-b724-d2c6297ef351")


def make_signature(form: SignedForm, digest: bytes, signer: CodeSigner) -> bytes:
    """The signature of a file with this SHA-256 digest."""
    content = form.encoded + sequence(_SHA256, octets(digest))
    attributes = [
        sequence(identifier(_CONTENT_TYPE), set_of(identifier(_INDIRECT_DATA))),
        sequence(identifier(_OPUS_INFO), set_of(sequence())),
        # Of the content without its tag and length.
        sequence(identifier(_MESSAGE_DIGEST), set_of(octets(hashlib.sha256(content).digest()))),
    ]
    certificate = signer.certificate
    signer_info = sequence(
        integer(1),
        sequence(certificate.issuer.public_bytes(), integer(certificate.serial_number)),
        _SHA256,
        tagged(0, b"".join(sorted(attributes))),
        _RSA,
        # They are signed as a SET, and stand in the signature under another tag.
        octets(signer.sign(set_of(*attributes))),
    )
    certificates = b"".join(one.public_bytes(Encoding.DER) for one in (certificate, signer.root))
    signed_data = sequence(
        integer(1),
        set_of(_SHA256),
        sequence(identifier(_INDIRECT_DATA), tagged(0, sequence(content))),
        tagged(0, certificates),
        set_of(signer_info),
    )
    return sequence(identifier(_SIGNED_DATA), tagged(0, signed_data))
