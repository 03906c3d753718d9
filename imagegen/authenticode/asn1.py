"""The ASN.1 structures of Authenticode, PKCS #7 and timestamps for asn1crypto, and the one way to decode them.

asn1crypto decodes lazily and raises many exceptions for damaged bytes. Everything that touches its objects is within
`decoding`, and leaves it as plain values.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from asn1crypto import algos, cms, core, parser, tsp, x509

from imagegen.authenticode.model import MalformedData

_DECODING_ERRORS: Final = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError),
    *(NotImplementedError, AssertionError),
)
_UNIVERSAL: Final = 0
_CONTEXT: Final = 2
_OCTET_STRING: Final = 4
_SEQUENCE: Final = 16


class AnySet(core.SetOf):
    _child_spec = core.Any


class Attribute(core.Sequence):
    _fields = [("type", core.ObjectIdentifier), ("values", AnySet)]


class Attributes(core.SetOf):
    _child_spec = Attribute


class ContentInfo(core.Sequence):
    _fields = [
        ("content_type", core.ObjectIdentifier),
        ("content", core.Any, {"explicit": 0, "optional": True}),
    ]


class SignerInfo(core.Sequence):
    _fields = [
        ("version", core.Integer),
        ("sid", cms.SignerIdentifier),
        ("digest_algorithm", algos.DigestAlgorithm),
        ("signed_attributes", Attributes, {"implicit": 0, "optional": True}),
        ("signature_algorithm", algos.SignedDigestAlgorithm),
        ("signature", core.OctetString),
        ("unsigned_attributes", Attributes, {"implicit": 1, "optional": True}),
    ]


class SignerInfos(core.SetOf):
    _child_spec = SignerInfo


class SignedData(core.Sequence):
    """PKCS #7 1.5 and CMS alike: they differ in what `content` holds."""

    _fields = [
        ("version", core.Integer),
        ("digest_algorithms", AnySet),
        ("content", ContentInfo),
        ("certificates", AnySet, {"implicit": 0, "optional": True}),
        ("crls", AnySet, {"implicit": 1, "optional": True}),
        ("signer_infos", SignerInfos),
    ]


class TypedValue(core.Sequence):
    _fields = [("type", core.ObjectIdentifier), ("value", core.Any, {"optional": True})]


class DigestInfo(core.Sequence):
    _fields = [("algorithm", algos.DigestAlgorithm), ("digest", core.OctetString)]


class IndirectData(core.Sequence):
    """SpcIndirectDataContent: which file is signed."""

    _fields = [("data", TypedValue), ("message_digest", DigestInfo)]


class SipInfo(core.Sequence):
    """SpcSipInfo: the form of a file that is not a PE."""

    _fields = [("version", core.Integer), ("guid", core.OctetString)] + [
        (f"reserved_{number}", core.Integer) for number in range(5)
    ]


class ObjectIdentifiers(core.SequenceOf):
    _child_spec = core.ObjectIdentifier


class TrustedSubject(core.Sequence):
    _fields = [("identifier", core.OctetString), ("attributes", Attributes, {"optional": True})]


class TrustedSubjects(core.SequenceOf):
    _child_spec = TrustedSubject


class TrustList(core.Sequence):
    """CertificateTrustList: the content of a catalogue, and of Microsoft's list of roots."""

    _fields = [
        ("version", core.Integer, {"default": 0}),
        ("usage", ObjectIdentifiers),
        ("list_identifier", core.OctetString, {"optional": True}),
        ("sequence_number", core.Integer, {"optional": True}),
        ("this_update", x509.Time),
        ("next_update", x509.Time, {"optional": True}),
        ("algorithm", TypedValue),
        ("subjects", TrustedSubjects, {"optional": True}),
        ("extensions", core.Any, {"explicit": 0, "optional": True}),
    ]


class EssCertificate(core.Sequence):
    """ESSCertID and ESSCertIDv2: the certificate of a timestamp authority, by its digest."""

    _fields = [
        ("algorithm", algos.DigestAlgorithm, {"default": {"algorithm": "sha256"}}),
        ("digest", core.OctetString),
        ("issuer_serial", core.Any, {"optional": True}),
    ]


class EssCertificates(core.SequenceOf):
    _child_spec = EssCertificate


class SigningCertificate(core.Sequence):
    _fields = [("certificates", EssCertificates), ("policies", core.Any, {"optional": True})]


TimestampInfo = tsp.TSTInfo
Time = x509.Time
DigestAlgorithm = algos.DigestAlgorithm
OctetString = core.OctetString
ObjectIdentifier = core.ObjectIdentifier


@contextlib.contextmanager
def decoding(what: str) -> Iterator[None]:
    """Within it, every exception that damaged bytes cause is a MalformedData that names the part."""
    try:
        yield
    except _DECODING_ERRORS as error:
        raise MalformedData(f"{what} cannot be read") from error


def load(schema: Any, data: bytes) -> Any:  # noqa: ANN401 - asn1crypto has no types
    """Decode the whole of `data`. Bytes after it, or more fields than it has, are an error. Only within `decoding`."""
    value = schema.load(data, strict=True)
    if isinstance(value, core.Sequence) and len(value) > len(schema._fields):
        raise ValueError("too many fields")
    return value


def first_value(data: bytes) -> int:
    """The length of the encoded value with which `data` begins."""
    with decoding("the signature"):
        return int(parser.peek(data))


def items(value: Any) -> list[bytes]:  # noqa: ANN401 - asn1crypto has no types
    """The encoded values in a SET or SEQUENCE, of any kind: asn1crypto refuses some. Only within `decoding`."""
    data = bytes(value.contents or b"") if value else b""
    found = []
    while data:
        length = parser.peek(data)
        found.append(data[:length])
        data = data[length:]
    return found


def content_of(info: Any) -> bytes:  # noqa: ANN401 - asn1crypto has no types
    """The encoded content of a ContentInfo. Only within `decoding`."""
    _, wrapped = items(info)
    found_class, _, tag, _, contents, _ = parser.parse(wrapped, strict=True)
    if (found_class, tag) != (_CONTEXT, 0):
        raise ValueError("no content")
    return bytes(contents)


def octets(encoded: bytes) -> bytes:
    """The octets of a content that are digested: of an OCTET STRING its value, otherwise everything after the length.

    PKCS #7 1.5, 9.3. Only within `decoding`.
    """
    found_class, _, tag, _, contents, _ = parser.parse(encoded, strict=True)
    if found_class == _UNIVERSAL and tag == _OCTET_STRING:
        return bytes(core.OctetString.load(encoded, strict=True).native)
    if found_class != _UNIVERSAL or tag != _SEQUENCE:
        raise ValueError("neither an OCTET STRING nor a SEQUENCE")
    return bytes(contents)


def is_sequence(encoded: bytes) -> bool:
    """Whether the value is a SEQUENCE: certificates are, the older and other forms in their place are not."""
    return encoded[:1] == b"\x30"
