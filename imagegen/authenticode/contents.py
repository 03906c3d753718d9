"""Reads what an Authenticode signature signs: the digest of a file, or a list of digests. Pure."""

import dataclasses
import datetime
import uuid
from collections.abc import Sequence
from typing import Any, Final

from imagegen.authenticode import asn1
from imagegen.authenticode.algorithms import DIGESTS, digest_name
from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.errors import MalformedData

INDIRECT_DATA: Final = "1.3.6.1.4.1.311.2.1.4"
TRUST_LIST: Final = "1.3.6.1.4.1.311.10.1"
PE_IMAGE: Final = "1.3.6.1.4.1.311.2.1.15"
_SIP_INFO: Final = "1.3.6.1.4.1.311.2.1.30"
OPUS_INFO: Final = "1.3.6.1.4.1.311.2.1.12"
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


def read_program(values: Sequence[bytes]) -> tuple[str, str]:
    """What the signer calls the program, and the address for more about it, from the signed attribute OPUS_INFO."""
    try:
        with decoding("the program's name"):
            found = load(asn1.OpusInfo, values[0])
            name, link = found["program_name"].native, found["more_info"]
            url = link.native if link.name == "url" else ""
            return str(name or ""), str(url or "")
    except MalformedData:
        # Most signatures have none. It decides nothing, and is signed like the rest.
        return "", ""


def as_sequence(content: bytes) -> bytes:
    """The content of a SEQUENCE with its tag and length: only the content is digested, and so only that is kept."""
    length = len(content)
    if length < _LONG_FORM:
        return bytes([_SEQUENCE, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([_SEQUENCE, _LONG_FORM | size]) + length.to_bytes(size) + content
