"""A file as its signature sees it, and the bounded reading of files. Reads only the file that it is given."""

import hashlib
import os
from collections.abc import Iterable
from typing import IO, Final

from imagegen.authenticode.algorithms import digest_label
from imagegen.authenticode.contents import INDIRECT_DATA, SignedDigest, read_indirect_data
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import FileKind

_CHUNK: Final = 1024 * 1024


class Subject:
    """A file that can hold no signature of its own. The other forms of files are derived from it."""

    kind = FileKind.OTHER
    # What a signature must call this form of file.
    form = ""
    # The encoded signature. Empty: the file has none.
    signature = b""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def read_signature(self) -> None:
        """Find the signature. That it is damaged is a MalformedData."""

    def check(self, content_type: str, content: bytes) -> tuple[str, str]:
        """Check what the signature signs: its digest algorithm, and what is wrong. Empty: it signs this file."""
        if content_type != INDIRECT_DATA:
            raise MalformedData("it is not an Authenticode signature")
        signed = read_indirect_data(content)
        return signed.algorithm, self.difference(signed)

    def digest(self, algorithm: str) -> bytes:
        """The digest that a signature of this form signs."""
        return hash_ranges(self.file, [(0, file_size(self.file))], algorithm)

    def listed_digests(self, algorithm: str) -> set[bytes]:
        """The digests under which a catalogue may list the file: that of its form, and that of all its bytes."""
        return {self.digest(algorithm), Subject.digest(self, algorithm)}

    def difference(self, signed: SignedDigest) -> str:
        """In what the file differs from the one that was signed. Empty: it is the same."""
        if signed.form != self.form:
            return f"the signature is not one for a {self.kind}"
        if self.digest(signed.algorithm) != signed.digest:
            return f"the file was changed after it was signed: its {digest_label(signed.algorithm)} digest differs"
        return ""


def file_size(file: IO[bytes]) -> int:
    """The size of an open file."""
    return file.seek(0, os.SEEK_END)


def read_exactly(file: IO[bytes], offset: int, length: int, what: str) -> bytes:
    """A part of a file. That the file is too short for it is a MalformedData."""
    file.seek(offset)
    data = file.read(length)
    if len(data) != length:
        raise MalformedData(f"the file is too short for {what}")
    return data


def read_whole(file: IO[bytes], limit: int, what: str) -> bytes:
    """A file of at most `limit` bytes."""
    file.seek(0)
    data = file.read(limit + 1)
    if len(data) > limit:
        raise MalformedData(f"{what} has more than {limit} bytes")
    return data


def hash_ranges(file: IO[bytes], ranges: Iterable[tuple[int, int]], algorithm: str, padding: int = 0) -> bytes:
    """The digest of parts of a file, each from an offset to another, and of zeros after them."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    for start, end in ranges:
        file.seek(start)
        for offset in range(start, end, _CHUNK):
            hasher.update(file.read(min(_CHUNK, end - offset)))
    hasher.update(bytes(padding))
    return hasher.digest()
