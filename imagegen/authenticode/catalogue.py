"""Reads a security catalogue (.cat): signed data whose content is a list of digests of other files."""

import re
from typing import Final

from imagegen.authenticode.asn1 import first_value
from imagegen.authenticode.cms import LARGEST_SIGNATURE, read_signed_data
from imagegen.authenticode.contents import (
    INDIRECT_DATA,
    TRUST_LIST,
    ListedSubject,
    read_listed_digest,
    read_trust_list,
)
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import FileKind
from imagegen.authenticode.subject import Subject, read_whole
from imagegen.base.lines import counted

_BY_LENGTH: Final = {20: "sha1", 32: "sha256"}
_HEX: Final = re.compile("[0-9A-Fa-f]+")


class CatalogueFile(Subject):
    """A file that is all signature."""

    kind = FileKind.CATALOGUE

    def read_signature(self) -> None:
        """Read the file, which must end with the signature."""
        data = read_whole(self.file, LARGEST_SIGNATURE, "the catalogue")
        length = first_value(data)
        if length < len(data):
            raise MalformedData(f"the signature is followed by {counted(len(data) - length, 'byte')}")
        self.signature = data

    def check(self, content_type: str, content: bytes) -> tuple[str, str]:
        """Check that a list is signed. There is no file beside it whose digest could differ."""
        if content_type != TRUST_LIST:
            raise MalformedData("it is not a catalogue")
        read_trust_list(content)
        return "", ""


def read_members(encoded: bytes) -> frozenset[tuple[str, bytes]]:
    """The digests of the files that a catalogue lists, with their algorithms."""
    data = read_signed_data(encoded)
    rows = read_trust_list(data.content).subjects if data.content_type == TRUST_LIST else ()
    return frozenset(member for row in rows for member in _members(row))


def _members(row: ListedSubject) -> list[tuple[str, bytes]]:
    digests = [read_listed_digest(encoded) for encoded in row.attributes.get(INDIRECT_DATA, ())]
    if digests:
        return [(found.algorithm, found.digest) for found in digests if found]
    # The row itself is named after the digest: its bytes, or its hexadecimal digits in UTF-16.
    name = row.identifier
    text = name.decode("utf-16-le", "replace").rstrip("\0")
    if len(name) not in _BY_LENGTH and _HEX.fullmatch(text) and len(text) % 2 == 0:
        name = bytes.fromhex(text)
    return [(_BY_LENGTH[len(name)], name)] if len(name) in _BY_LENGTH else []
