"""Finds the signature of an MSI file, and computes the digest that it signs.

All streams are digested in the order of their names, and after those of a storage its class. If there is a stream
MsiDigitalSignatureEx, the names, sizes and times are digested too, before them. What lies between the streams is not.
"""

import hashlib
from collections.abc import Iterator
from typing import IO, Any, Final

from imagegen.authenticode.cms import LARGEST_SIGNATURE
from imagegen.authenticode.compound_file import ROOT, STREAM, CompoundFile, Entry
from imagegen.authenticode.contents import SignedDigest
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import FileKind
from imagegen.authenticode.subject import Subject, file_size
from imagegen.base.lines import counted

_SIGNATURE: Final = "\5DigitalSignature".encode("utf-16-le")
_EXTENDED: Final = "\5MsiDigitalSignatureEx".encode("utf-16-le")
_LONGEST_DIGEST: Final = 64
_CHUNK: Final = 1024 * 1024


class InstallerPackage(Subject):
    """An MSI file. A damaged one is a MalformedData."""

    kind = FileKind.MSI
    form = "000c10f1-0000-0000-c000-000000000046"

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._storage = CompoundFile(file)
        self._extended: bytes | None = None

    def read_signature(self) -> None:
        """Read the streams of the signature, if there are any."""
        for entry in self._storage.root.children:
            if entry.kind == STREAM and entry.name == _SIGNATURE:
                self.signature = self._storage.read(entry, LARGEST_SIGNATURE, "the stream of the signature")
            elif entry.kind == STREAM and entry.name == _EXTENDED:
                self._extended = self._storage.read(entry, _LONGEST_DIGEST, "the stream of the extended signature")
        # Nothing reads these bytes as an MSI. Other programs may: https://nvd.nist.gov/vuln/detail/CVE-2020-1464
        surplus = file_size(self.file) - self._storage.end
        if self.signature and surplus > 0:
            raise MalformedData(f"the last sector in use is followed by {counted(surplus, 'byte')}")

    def digest(self, algorithm: str) -> bytes:
        """The Authenticode digest."""
        hasher = hashlib.new(algorithm, usedforsecurity=False)
        if self._extended is not None:
            hasher.update(self._extended_digest(algorithm))
        self._hash_contents(self._storage.root, hasher)
        return hasher.digest()

    def difference(self, signed: SignedDigest) -> str:
        """In what the file differs from the one that was signed. Empty: it is the same."""
        if self._extended is not None and self._extended != self._extended_digest(signed.algorithm):
            return "the file was changed after it was signed: the names, sizes or times of its streams differ"
        return super().difference(signed)

    def _hash_contents(self, storage: Entry, hasher: Any) -> None:  # noqa: ANN401 - hashlib's objects have no public type
        for entry in _signed_children(storage):
            if entry.kind != STREAM:
                self._hash_contents(entry, hasher)
                continue
            for start, end in self._storage.ranges(entry):
                self.file.seek(start)
                for offset in range(start, end, _CHUNK):
                    hasher.update(self.file.read(min(_CHUNK, end - offset)))
        hasher.update(storage.class_id)

    def _extended_digest(self, algorithm: str) -> bytes:
        hasher = hashlib.new(algorithm, usedforsecurity=False)
        _hash_names(self._storage.root, hasher)
        return hasher.digest()


def _hash_names(entry: Entry, hasher: Any) -> None:  # noqa: ANN401 - hashlib's objects have no public type
    if entry.kind != ROOT:
        hasher.update(entry.name)
    hasher.update(entry.size.to_bytes(8, "little")[:4] if entry.kind == STREAM else entry.class_id)
    hasher.update(entry.state)
    if entry.kind != ROOT:
        hasher.update(entry.created + entry.modified)
    for child in _signed_children(entry):
        _hash_names(child, hasher)


def _signed_children(storage: Entry) -> Iterator[Entry]:
    """All but the signature itself."""
    for child in storage.children:
        if storage.kind != ROOT or child.name not in (_SIGNATURE, _EXTENDED):
            yield child
