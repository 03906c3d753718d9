"""Tells what one file is, and what is in it: types, digests, versions and signatures.

Reads the file and trusts nothing in it. Programs of an archive are copied to a folder, one after the other.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Final

from imagegen.authenticode.files import COMMENTS
from imagegen.authenticode.verify import read_catalogue, verify
from imagegen.base.errors import ConfigError
from imagegen.fetch.download import LIMIT_BYTES
from imagegen.inspect.archive import find_type, open_members
from imagegen.inspect.versions import read_properties, read_version
from imagegen.trust.messages import FoundSignature, add_to_roots, advise, describe_signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.authenticode.model import Catalogue, Trust
    from imagegen.inspect.archive import ArchiveFormat, FileType

_START: Final = 1024
_CATALOGUE: Final = ".cat"
_ROOTS: Final = "--roots, which is artifacts.signatures.roots of a config"
_MOST_CATALOGUES: Final = 100
# A larger program is not looked into: no program of an image is a tenth as large.
LARGEST_PROGRAM: Final = 1 << 30
_CHUNK: Final = 1 << 20


@dataclasses.dataclass(frozen=True)
class InspectedFile:
    """A file, or a file of an archive. `signature` is None if a file of this type can have none."""

    type: FileType
    size: int
    sha256: str
    version: dict[str, str]
    signature: FoundSignature | None


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What one file is. `members` are the files of an archive by their paths; None for any other file."""

    file: InspectedFile
    members: dict[str, InspectedFile] | None


def check_file(file: Path, name: str) -> None:
    """Reject what is no file, or larger than what imagegen downloads."""
    if not file.is_file():
        what = "is not a regular file" if file.exists() else "does not exist"
        raise ConfigError(f"{name} {what}", hint="give the path of a file, or a URL that starts with https://")
    if file.stat().st_size > LIMIT_BYTES:
        raise ConfigError(f"{name} is larger than {LIMIT_BYTES // 2**30} GiB", hint="imagegen uses no larger file")


def inspect_file(file: Path, name: str, trust: Trust, scratch: Path) -> Inspection:
    """Look into a file. `name` is for messages, and says what Windows takes it for."""
    with file.open("rb") as opened:
        kind, size, sha256 = _read(iter(lambda: opened.read(_CHUNK), b""), name)
        found = InspectedFile(kind, size, sha256, *_look_into(opened, kind, size, name, trust, ()))
    if found.type not in ("zip", "tar.gz", "tar"):
        return Inspection(found, None)
    archive = _Archive(file, found.type, name, trust, scratch / "member")
    return Inspection(found, archive.inspect())


def _read(chunks: Iterator[bytes], name: str, copy: IO[bytes] | None = None) -> tuple[FileType, int, str]:
    """Type, size and digest of a file. What may be signed is copied."""
    kind, size, digest = find_type(b""), 0, hashlib.sha256()
    for chunk in chunks:
        # The first chunk has all that tells the type.
        kind = _known_by_name(find_type(chunk[:_START]), name) if not size else kind
        size += len(chunk)
        digest.update(chunk)
        if copy is not None and size <= LARGEST_PROGRAM and _may_be_signed(kind, name):
            copy.write(chunk)
    return kind, size, digest.hexdigest()


def _known_by_name(kind: FileType, name: str) -> FileType:
    """Scripts and catalogues have no first bytes of their own. Windows knows them by their names."""
    if kind != "other":
        return kind
    return "script" if _extension(name) in COMMENTS else "catalogue" if _extension(name) == _CATALOGUE else kind


def _may_be_signed(kind: FileType, name: str) -> bool:
    return kind in ("program", "msi") or _extension(name) in (*COMMENTS, _CATALOGUE)


def _extension(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _look_into(
    file: IO[bytes], kind: FileType, size: int, name: str, trust: Trust, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, str], FoundSignature | None]:
    """The version resource or the properties of a package, and the signature."""
    if not _may_be_signed(kind, name):
        return {}, None
    if size > LARGEST_PROGRAM:
        return {}, FoundSignature("not checked", f"the file is larger than {LARGEST_PROGRAM // 2**30} GiB")
    version = read_properties(file) if kind == "msi" else read_version(file)
    found = verify(file, name, trust, catalogues)
    advice = advise(found, trust, add_root=add_to_roots(trust, _ROOTS), other="take another file")
    return version, describe_signature(found, advice)


@dataclasses.dataclass(frozen=True)
class _Archive:
    file: Path
    format: ArchiveFormat
    name: str
    trust: Trust
    copy: Path

    def inspect(self) -> dict[str, InspectedFile]:
        """Each file. Catalogues sign for the programs beside them: then all are judged once more."""
        catalogues: list[Catalogue] = []
        found = dict(self._inspect((), catalogues))
        return dict(self._inspect(tuple(catalogues), [])) if catalogues else found

    def _inspect(self, catalogues: Sequence[Catalogue], others: list[Catalogue]) -> Iterator[tuple[str, InspectedFile]]:
        """Judge each file. The catalogues of the archive are added to `others`."""
        for member in open_members(self.file, self.format, self.name):
            with self.copy.open("w+b") as copy:
                kind, size, sha256 = _read(member.chunks(), member.path, copy)
                looked = _look_into(copy, kind, size, member.path, self.trust, catalogues)
                is_catalogue = _extension(member.path) == _CATALOGUE and size <= LARGEST_PROGRAM
                if is_catalogue and len(others) < _MOST_CATALOGUES:
                    others.append(read_catalogue(copy, member.path, self.trust))
            yield member.path, InspectedFile(kind, size, sha256, *looked)
