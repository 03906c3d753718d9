"""Reads PKCS #7 and CMS signed data, and verifies one signer's signature over it. Pure.

What a verification needs leaves this module as plain values; chains and timestamps are judged elsewhere.
"""

import dataclasses
import datetime
import functools
import hmac
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from imagegen.authenticode import asn1
from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.certificates import (
    DIGESTS,
    LARGEST_CERTIFICATE,
    SignatureAlgorithm,
    digest_name,
    digest_of,
    is_old_signature_right,
    is_signature_right,
    read_certificate,
    read_signature_algorithm,
)
from imagegen.authenticode.model import Certificate, MalformedData

SIGNED_DATA: Final = "1.2.840.113549.1.7.2"
LARGEST_SIGNATURE: Final = 16 * 1024 * 1024
MOST_CERTIFICATES: Final = 64
_MOST_ATTRIBUTES: Final = 64

_CONTENT_TYPE: Final = "1.2.840.113549.1.9.3"
_MESSAGE_DIGEST: Final = "1.2.840.113549.1.9.4"
_SET: Final = b"\x31"
_LONG_LENGTH: Final = 0x80


@dataclasses.dataclass(frozen=True)
class SignerInfo:
    """One signer's part. Attributes are by their object identifiers, with the encoded values."""

    # The signer's certificate by issuer and serial number, or by its key.
    issuer: bytes
    serial: int
    key_id: bytes
    digest: str
    algorithm: SignatureAlgorithm
    signature: bytes
    # The bytes that are signed, if there are signed attributes.
    signed_bytes: bytes
    signed: Mapping[str, Sequence[bytes]]
    unsigned: Mapping[str, Sequence[bytes]]

    def find(self, certificates: Sequence[Certificate]) -> Certificate | None:
        """The signer's certificate among these."""
        return next((certificate for certificate in certificates if self._is(certificate)), None)

    def _is(self, certificate: Certificate) -> bool:
        if self.issuer:
            serial = int.from_bytes(bytes.fromhex(certificate.serial), signed=True)
            return certificate.issuer.encoded == self.issuer and serial == self.serial
        return certificate.extensions.subject_key_id == self.key_id

    def check_content(self, content_type: str | None, content: bytes) -> None:
        """Check that the signed attributes are about this content, and of this type if one is given.

        Otherwise a MalformedData says what differs.
        """
        types, digests = self.signed.get(_CONTENT_TYPE, ()), self.signed.get(_MESSAGE_DIGEST, ())
        with decoding("the signed attributes"):
            if content_type is not None and [_object_identifier(value) for value in types] != [content_type]:
                raise MalformedData("the signed attributes are about another type of content")
            if [_octet_string(value) for value in digests] != [digest_of(self.digest, [content])]:
                raise MalformedData("the signed content was changed: its digest is not the one that was signed")

    def is_signed_by(self, certificate: Certificate) -> bool:
        """Whether the owner of this certificate made the signature."""
        arguments = (certificate.public_key, self.algorithm, self.signature, self.signed_bytes)
        return is_signature_right(*arguments) or is_old_signature_right(*arguments)


@dataclasses.dataclass(frozen=True)
class SignedData:
    """A content, and who signed it. `content` is what is digested."""

    content_type: str
    content: bytes
    certificates: tuple[Certificate, ...]
    signer: SignerInfo


def read_signed_data(encoded: bytes) -> SignedData:
    """The signed data. Damaged bytes are a MalformedData."""
    if len(encoded) > LARGEST_SIGNATURE:
        raise MalformedData(f"it has {len(encoded)} bytes, at most {LARGEST_SIGNATURE} are allowed")
    with decoding("the signature"):
        outer = load(asn1.ContentInfo, encoded)
        if outer["content_type"].dotted != SIGNED_DATA:
            raise MalformedData("it is not PKCS #7 signed data")
        data = load(asn1.SignedData, asn1.content_of(outer))
        signers = list(data["signer_infos"])
        if len(signers) != 1:
            raise MalformedData(f"it has {len(signers)} signers, but must have one")
        signer = _signer(load(asn1.SignerInfo, signers[0].dump()))
        if signer.digest not in map(_algorithm, asn1.items(data["digest_algorithms"])):
            raise MalformedData("the signer's digest algorithm is not the one that is announced")
        content = data["content"]
        return SignedData(
            content_type=content["content_type"].dotted,
            content=asn1.octets(asn1.content_of(content)),
            certificates=_certificates(data["certificates"]),
            signer=signer,
        )


def read_signer_info(encoded: bytes) -> SignerInfo:
    """A signer's part that stands alone, as a countersignature does."""
    with decoding("the countersignature"):
        return _signer(load(asn1.SignerInfo, encoded))


def read_algorithm(value: Any) -> str:  # noqa: ANN401 - asn1crypto has no types
    """The digest of asn1crypto's DigestAlgorithm. Only within `decoding`."""
    return digest_name(value["algorithm"].dotted)


def are_same(digest: bytes, other: bytes) -> bool:
    """Whether two digests are equal."""
    return hmac.compare_digest(digest, other)


def _signer(value: Any) -> SignerInfo:  # noqa: ANN401 - asn1crypto has no types
    sid = value["sid"]
    by_issuer = sid.name == "issuer_and_serial_number"
    digest = read_algorithm(value["digest_algorithm"])
    signed = value["signed_attributes"]
    attributes = _attributes(signed)
    if any(len(values) != 1 for values in attributes.values()):
        raise MalformedData("a signed attribute has several values")
    return SignerInfo(
        issuer=sid.chosen["issuer"].dump() if by_issuer else b"",
        serial=sid.chosen["serial_number"].native if by_issuer else 0,
        key_id=b"" if by_issuer else bytes(sid.chosen.native),
        digest=digest,
        algorithm=read_signature_algorithm(value["signature_algorithm"]).with_digest(digest),
        signature=bytes(value["signature"].native),
        signed_bytes=_as_set(signed.dump()) if attributes else b"",
        signed=attributes,
        unsigned=_attributes(value["unsigned_attributes"]),
    )


def _as_set(encoded: bytes) -> bytes:
    # The tag says "attributes of a signer" there, but "SET OF" was signed (RFC 5652, 5.4).
    if encoded[1] == _LONG_LENGTH:
        raise MalformedData("the signed attributes have no definite length")
    return _SET + encoded[1:]


def _attributes(value: Any) -> dict[str, list[bytes]]:  # noqa: ANN401 - asn1crypto has no types
    attributes: dict[str, list[bytes]] = {}
    for number, attribute in enumerate(value or ()):
        if number == _MOST_ATTRIBUTES:
            raise MalformedData(f"a signer has more than {_MOST_ATTRIBUTES} attributes")
        attributes.setdefault(attribute["type"].dotted, []).extend(asn1.items(attribute["values"]))
    return attributes


def _algorithm(encoded: bytes) -> str:
    return read_algorithm(load(asn1.DigestAlgorithm, encoded))


def _certificates(value: Any) -> tuple[Certificate, ...]:  # noqa: ANN401 - asn1crypto has no types
    encoded = asn1.items(value)
    if len(encoded) > MOST_CERTIFICATES:
        raise MalformedData(f"it holds {len(encoded)} certificates, at most {MOST_CERTIFICATES} are allowed")
    return tuple(certificate for certificate in map(_readable, encoded) if certificate)


@functools.lru_cache(maxsize=1024)
def _readable(encoded: bytes) -> Certificate | None:
    # A certificate that cannot be read helps no chain. If the chain needs it, that is what will be said.
    if not asn1.is_sequence(encoded) or len(encoded) > LARGEST_CERTIFICATE:
        return None
    try:
        return read_certificate(encoded)
    except MalformedData:
        return None


def _object_identifier(encoded: bytes) -> str:
    return str(load(asn1.ObjectIdentifier, encoded).dotted)


def _octet_string(encoded: bytes) -> bytes:
    return bytes(load(asn1.OctetString, encoded).native)


INDIRECT_DATA: Final = "1.3.6.1.4.1.311.2.1.4"
TRUST_LIST: Final = "1.3.6.1.4.1.311.10.1"
PE_IMAGE: Final = "1.3.6.1.4.1.311.2.1.15"
_SIP_INFO: Final = "1.3.6.1.4.1.311.2.1.30"
_SEQUENCE: Final = 0x30
_LONG_FORM: Final = 0x80
_MOST_SUBJECTS: Final = 100_000


@dataclasses.dataclass(frozen=True)
class SignedDigest:
    """The digest of a file, and the form of the file: PE_IMAGE, or the GUID of a subject interface package."""

    form: str
    algorithm: str
    digest: bytes


@dataclasses.dataclass(frozen=True)
class ListedSubject:
    """One row of a trust list: its name, and its attributes by their object identifiers."""

    identifier: bytes
    attributes: dict[str, Sequence[bytes]]


@dataclasses.dataclass(frozen=True)
class TrustList:
    """A catalogue, or Microsoft's list of roots."""

    this_update: datetime.datetime
    subjects: tuple[ListedSubject, ...]


def read_indirect_data(content: bytes) -> SignedDigest:
    """The digest that the content of a signature names."""
    with decoding("the signed digest"):
        found = load(asn1.IndirectData, as_sequence(content))
        digest = found["message_digest"]
        return SignedDigest(
            form=_form(found["data"]),
            algorithm=digest_name(digest["algorithm"]["algorithm"].dotted),
            digest=bytes(digest["digest"].native),
        )


def _form(data: Any) -> str:  # noqa: ANN401 - asn1crypto has no types
    kind = str(data["type"].dotted)
    if kind != _SIP_INFO:
        return kind
    guid = load(asn1.SipInfo, asn1.items(data)[1])["guid"].native
    return str(uuid.UUID(bytes_le=bytes(guid)))


def read_trust_list(content: bytes) -> TrustList:
    """The rows of a trust list."""
    with decoding("the catalogue's list"):
        found = load(asn1.TrustList, as_sequence(content))
        rows = found["subjects"]
        if len(rows) > _MOST_SUBJECTS:
            raise MalformedData(f"the catalogue has {len(rows)} rows, at most {_MOST_SUBJECTS} are allowed")
        this_update = found["this_update"].native
        if not isinstance(this_update, datetime.datetime):
            raise MalformedData("the catalogue has no valid time")
        return TrustList(this_update, tuple(_subject(row) for row in rows))


def _subject(row: Any) -> ListedSubject:  # noqa: ANN401 - asn1crypto has no types
    return ListedSubject(
        identifier=bytes(row["identifier"].native),
        attributes={attribute["type"].dotted: asn1.items(attribute["values"]) for attribute in row["attributes"] or ()},
    )


def read_listed_digest(encoded: bytes) -> SignedDigest | None:
    """The digest in a row of a catalogue. None: with an algorithm that is not supported, or without a digest."""
    with decoding("a row of the catalogue"):
        found = load(asn1.IndirectData, encoded)
        algorithm = found["message_digest"]["algorithm"]["algorithm"].dotted
        if algorithm not in DIGESTS:
            return None
        return SignedDigest(_form(found["data"]), DIGESTS[algorithm], bytes(found["message_digest"]["digest"].native))


def as_sequence(content: bytes) -> bytes:
    """The content of a SEQUENCE with its tag and length: only the content is digested, and so only that is kept."""
    length = len(content)
    if length < _LONG_FORM:
        return bytes([_SEQUENCE, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([_SEQUENCE, _LONG_FORM | size]) + length.to_bytes(size) + content
