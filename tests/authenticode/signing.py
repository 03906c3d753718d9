"""Signs files as signtool does, with any fault that a test needs: a second pair of eyes on the structures.

The digests of the files are imagegen's own. That they are Windows' is what the files of osslsigncode show.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import io
import struct
import uuid
from typing import TYPE_CHECKING, Any

from asn1crypto import algos, cms, core, parser, tsp, x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from imagegen.authenticode import asn1
from imagegen.authenticode.certificates import DIGESTS
from imagegen.authenticode.cms import INDIRECT_DATA, PE_IMAGE, SIGNED_DATA, TRUST_LIST, as_sequence, read_signed_data
from imagegen.authenticode.files import COMMENTS, PortableExecutable, Script
from tests.authenticode.pki import STAMPED, Identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NESTED = "1.3.6.1.4.1.311.2.4.1"
TOKEN = "1.3.6.1.4.1.311.3.3.1"  # noqa: S105 - an object identifier
COUNTERSIGNATURE = "1.2.840.113549.1.9.6"
_CONTENT_TYPE = "1.2.840.113549.1.9.3"
_MESSAGE_DIGEST = "1.2.840.113549.1.9.4"
_SIGNING_TIME = "1.2.840.113549.1.9.5"
_SIGNING_CERTIFICATE = "1.2.840.113549.1.9.16.2.47"
_TIMESTAMP_INFO = "1.2.840.113549.1.9.16.1.4"
_DATA = "1.2.840.113549.1.7.1"
_MEMBER_INFO = "1.3.6.1.4.1.311.12.2.3"
_ECDSA = {"sha1": "1.2.840.10045.4.1", "sha256": "1.2.840.10045.4.3.2", "sha384": "1.2.840.10045.4.3.3"}
_HASHES: Mapping[str, hashes.HashAlgorithm] = {
    "md5": hashes.MD5(),  # noqa: S303 - tests sign with it to see it refused
    "sha1": hashes.SHA1(),  # noqa: S303 - the same
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
}
_OIDS = {name: oid for oid, name in DIGESTS.items()}


@dataclasses.dataclass(frozen=True)
class Options:
    """How to sign."""

    digest: str = "sha256"
    # The digest of the signer's own signature, if it is another one.
    signer_digest: str = ""
    pss: bool = False
    # The certificates in the signature: the signer, and those above it but the root.
    certificates: Sequence[Identity] | None = None
    unsigned: Mapping[str, Sequence[bytes]] = dataclasses.field(default_factory=dict)
    timestamps: Sequence[Identity] = ()
    countersigners: Sequence[Identity] = ()
    stamped: datetime.datetime = STAMPED


def sign_content(content_type: str, content: bytes, signer: Identity, options: Options) -> bytes:
    """Signed data as in PKCS #7 1.5: the content is a SEQUENCE, encoded here, and no OCTET STRING."""
    digest = options.signer_digest or options.digest
    value = parser.parse(content)[4]
    attributes = {
        _CONTENT_TYPE: core.ObjectIdentifier(content_type),
        _MESSAGE_DIGEST: core.OctetString(hashlib.new(digest, value).digest()),
    }
    signature, info = _signer_info(signer, digest, attributes, pss=options.pss)
    unsigned = {key: list(values) for key, values in options.unsigned.items()}
    for authority in options.timestamps:
        unsigned.setdefault(TOKEN, []).append(make_token(authority, signature, options.stamped))
    for authority in options.countersigners:
        unsigned.setdefault(COUNTERSIGNATURE, []).append(make_countersignature(authority, signature, options.stamped))
    if unsigned:
        info["unsigned_attributes"] = _attributes(
            {key: [_any(item) for item in items] for key, items in unsigned.items()}
        )
    identities = signer.chain[: max(1, len(signer.chain) - 1)] if options.certificates is None else options.certificates
    others = [other for authority in options.countersigners for other in authority.chain]
    return _signed_data(content_type, content, digest, [*identities, *others], info)


def make_token(
    authority: Identity,
    signature: bytes,
    time: datetime.datetime,
    digest: str = "sha256",
    certificates: Sequence[Identity] | None = None,
) -> bytes:
    """An RFC 3161 timestamp token."""
    info = tsp.TSTInfo(
        {
            "version": "v1",
            "policy": "1.2.3.4",
            "message_imprint": {
                "hash_algorithm": {"algorithm": digest},
                "hashed_message": hashlib.new(digest, signature).digest(),
            },
            "serial_number": 1,
            "gen_time": time,
        }
    ).dump()
    named = asn1.SigningCertificate({"certificates": [{"digest": hashlib.sha256(authority.der).digest()}]})
    attributes = {
        _CONTENT_TYPE: core.ObjectIdentifier(_TIMESTAMP_INFO),
        _MESSAGE_DIGEST: core.OctetString(hashlib.new(digest, info).digest()),
        _SIGNING_CERTIFICATE: named,
    }
    _, signer = _signer_info(authority, digest, attributes)
    held = authority.chain if certificates is None else certificates
    return _signed_data(_TIMESTAMP_INFO, core.OctetString(info).dump(), digest, held, signer)


def make_countersignature(
    authority: Identity,
    signature: bytes,
    time: datetime.datetime,
    digest: str = "sha256",
    *,
    content_type: str = _DATA,
    bare: bool = False,
) -> bytes:
    """A PKCS #9 countersignature, the older form of a timestamp. `bare`: as the oldest ones were, for RSA keys."""
    attributes = {
        _CONTENT_TYPE: core.ObjectIdentifier(content_type),
        _MESSAGE_DIGEST: core.OctetString(hashlib.new(digest, signature).digest()),
        _SIGNING_TIME: x509.Time({"utc_time": time}),
    }
    _, info = _signer_info(authority, digest, attributes)
    if bare:
        assert isinstance(authority.key, rsa.RSAPrivateKey)
        held = hashlib.new(digest, info["signed_attributes"].untag().dump()).digest()
        info["signature"] = _bare_signature(authority.key, held)
    return bytes(info.dump())


def _bare_signature(key: rsa.RSAPrivateKey, held: bytes) -> bytes:
    """PKCS #1 1.5 around something else than the name of an algorithm and a digest."""
    numbers, size = key.private_numbers(), key.key_size // 8
    block = b"\0\1" + b"\xff" * (size - 3 - len(held)) + b"\0" + held
    return pow(int.from_bytes(block), numbers.d, numbers.public_numbers.n).to_bytes(size)


def sign_digest(form: str, digest: bytes, signer: Identity, options: Options) -> bytes:
    """An Authenticode signature for a file with this digest."""
    return sign_content(INDIRECT_DATA, indirect_data(form, options.digest, digest), signer, options)


def indirect_data(form: str, algorithm: str, digest: bytes) -> bytes:
    if form == PE_IMAGE:
        # SpcPeImageData: no flags, and a link to a file without a name.
        data = {"type": PE_IMAGE, "value": core.Any(_sequence("0301 00 a004 a202 8000"))}
    else:
        sip = {"version": 65536, "guid": uuid.UUID(form).bytes_le, **{f"reserved_{number}": 0 for number in range(5)}}
        data = {"type": "1.3.6.1.4.1.311.2.1.30", "value": core.Any(asn1.SipInfo(sip))}
    info = {"algorithm": {"algorithm": _OIDS[algorithm]}, "digest": digest}
    return bytes(asn1.IndirectData({"data": data, "message_digest": info}).dump())


def sign_pe(data: bytes, signer: Identity, options: Options | None = None) -> bytes:
    """A PE file with a signature."""
    options = options or Options()
    padded = data + bytes(-len(data) % 8)
    digest = PortableExecutable(io.BytesIO(padded)).digest(options.digest)
    return put_into_pe(padded, sign_digest(PE_IMAGE, digest, signer, options))


def put_into_pe(data: bytes, signature: bytes) -> bytes:
    """A PE file without a certificate table, and one that holds this."""
    entry = bytes(8 + len(signature)) + bytes(-len(signature) % 8)
    entry = struct.pack("<IHH", len(entry), 0x0200, 2) + signature + bytes(-len(signature) % 8)
    changed = bytearray(data + entry)
    struct.pack_into("<II", changed, table_entry(data), len(data), len(entry))
    return bytes(changed)


def table_entry(data: bytes | bytearray) -> int:
    """Where the header of a PE has the entry of the certificate table."""
    optional = struct.unpack_from("<I", data, 60)[0] + 24
    return int(optional + {0x10B: 128, 0x20B: 144}[struct.unpack_from("<H", data, optional)[0]])


def table(data: bytes | bytearray) -> tuple[int, int]:
    """Where the certificate table of a PE begins, and its size."""
    start, size = struct.unpack_from("<II", data, table_entry(data))
    return start, size


def signature_of(data: bytes) -> bytes:
    """The signature in a signed PE."""
    start, size = table(data)
    entry = data[start + 8 : start + size]
    return entry[: asn1.first_value(entry)]


def signature_value(data: bytes) -> bytes:
    """The signer's own signature in a signed PE: what a timestamp is about."""
    return read_signed_data(signature_of(data)).signer.signature


def sign_script(data: bytes, signer: Identity, options: Options | None = None, extension: str = ".ps1") -> bytes:
    """A script with a signature block, in its own encoding."""
    options = options or Options()
    script = Script(io.BytesIO(data), extension)
    block = sign_digest(script.form, script.digest(options.digest), signer, options)
    opening, closing = COMMENTS[extension]
    text = base64.b64encode(block).decode()
    lines = ["SIG # Begin signature block", *(text[at : at + 64] for at in range(0, len(text), 64))]
    lines.append("SIG # End signature block")
    encoded = "".join(f"\r\n{opening}{line}{closing}" for line in lines) + "\r\n"
    return data + encoded.encode("utf-16-le" if data.startswith(b"\xff\xfe") else "ascii")


def catalogue_list(members: Sequence[tuple[str, str, bytes]], *, now: datetime.datetime = STAMPED) -> bytes:
    """The content of a catalogue: for each member its form, and its digest with the algorithm."""
    rows = [
        {
            "identifier": digest,
            "attributes": [
                {
                    "type": INDIRECT_DATA,
                    "values": [core.Any(asn1.IndirectData.load(indirect_data(form, name, digest)))],
                },
                # Real catalogues have it, and asn1crypto cannot read it.
                {"type": _MEMBER_INFO, "values": [core.Any(core.Null(implicit=0))]},
            ],
        }
        for form, name, digest in members
    ]
    return bytes(
        asn1.TrustList(
            {
                "usage": ["1.3.6.1.4.1.311.12.1.1"],
                "list_identifier": bytes(16),
                "this_update": x509.Time({"utc_time": now}),
                "algorithm": {"type": "1.3.6.1.4.1.311.12.1.3", "value": core.Any(core.Null())},
                "subjects": rows,
            }
        ).dump()
    )


def make_catalogue(
    members: Sequence[tuple[str, str, bytes]], signer: Identity, options: Options | None = None
) -> bytes:
    """A signed catalogue."""
    return sign_content(TRUST_LIST, catalogue_list(members), signer, options or Options())


def unsigned_catalogue(members: Sequence[tuple[str, str, bytes]]) -> bytes:
    """A catalogue that nobody has signed yet, which signing programs take."""
    content = asn1.ContentInfo.load(content_info(TRUST_LIST, catalogue_list(members)))
    data = asn1.SignedData({"version": 1, "digest_algorithms": [], "content": content, "signer_infos": []})
    return content_info(SIGNED_DATA, data.dump())


def content_info(content_type: str, content: bytes) -> bytes:
    # asn1crypto does not put a tag around an Any.
    return encoded(0x30, core.ObjectIdentifier(content_type).dump() + encoded(0xA0, content))


def encoded(tag: int, contents: bytes) -> bytes:
    return bytes([tag]) + as_sequence(contents)[1:]


def _any(encoded: bytes) -> core.Any:
    return core.Any.load(encoded)


def _sequence(contents: str) -> core.Sequence:
    data = bytes.fromhex(contents)
    return core.Sequence.load(bytes([0x30, len(data)]) + data)


def _attributes(values: Mapping[str, Sequence[Any]]) -> asn1.Attributes:
    return asn1.Attributes(
        [
            {"type": key, "values": [core.Any(item) if not isinstance(item, core.Any) else item for item in items]}
            for key, items in values.items()
        ]
    )


def _signer_info(
    signer: Identity, digest: str, values: Mapping[str, Any], *, pss: bool = False
) -> tuple[bytes, asn1.SignerInfo]:
    """The signature and the structure that holds it."""
    attributes = _attributes({key: [value] for key, value in values.items()})
    signed = bytes(attributes.dump())
    chosen = _HASHES[digest]
    if isinstance(signer.key, rsa.RSAPrivateKey):
        scheme = padding.PSS(padding.MGF1(chosen), chosen.digest_size) if pss else padding.PKCS1v15()
        signature = signer.key.sign(signed, scheme, chosen)
        algorithm: Any = {"algorithm": "rsassa_pkcs1v15"}
        if pss:
            parameters = {
                "hash_algorithm": {"algorithm": digest},
                "mask_gen_algorithm": {"algorithm": "mgf1", "parameters": {"algorithm": digest}},
                "salt_length": chosen.digest_size,
            }
            algorithm = {"algorithm": "rsassa_pss", "parameters": parameters}
    else:
        signature = signer.key.sign(signed, ec.ECDSA(chosen))
        algorithm = {"algorithm": _ECDSA[digest]}
    certificate = x509.Certificate.load(signer.der)
    sid = cms.SignerIdentifier(
        name="issuer_and_serial_number",
        value=cms.IssuerAndSerialNumber({"issuer": certificate.issuer, "serial_number": certificate.serial_number}),
    )
    return signature, asn1.SignerInfo(
        {
            "version": 1,
            "sid": sid,
            "digest_algorithm": {"algorithm": _OIDS[digest]},
            "signed_attributes": attributes,
            "signature_algorithm": algos.SignedDigestAlgorithm(algorithm),
            "signature": signature,
        }
    )


def _signed_data(
    content_type: str, content: bytes, digest: str, identities: Sequence[Identity], signer: asn1.SignerInfo
) -> bytes:
    unique = dict.fromkeys(identity.der for identity in identities)
    data = asn1.SignedData(
        {
            "version": 1,
            "digest_algorithms": [core.Any(algos.DigestAlgorithm({"algorithm": _OIDS[digest]}))],
            "content": asn1.ContentInfo.load(content_info(content_type, content)),
            "certificates": [_any(der) for der in unique],
            "signer_infos": [signer],
        }
    )
    return content_info(SIGNED_DATA, data.dump())
