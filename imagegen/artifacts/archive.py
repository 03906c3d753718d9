"""An archive in, the sha256 of each regular file in it out. Nothing is written; names and sizes are distrusted."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from imagegen.errors import VerificationError

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.artifacts.form import ArchiveFormat

LIMIT_BYTES = 10 * 2**30
LIMIT_MEMBERS = 100_000

_CHUNK_BYTES = 1 << 20
# A tar header that announces a name of this size is an attack on memory, not a name.
_LARGEST_READ = 16 << 20
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    # How zipfile says that it does not know a compression.
    NotImplementedError,
)
# A trailing dot or blank is dropped by Windows, and a device's name means the device, whatever follows its dot.
_NOT_A_NAME = re.compile(
    r'|.*[\x00-\x1f\x7f<>"|?*].*|.*[. ]|(conin\$|conout\$|con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3]) *(\..*)?',
    re.DOTALL | re.IGNORECASE,
)
# The archive's own root, which many archives list as a folder.
_ROOT = ("", ".")


def read_members(file: Path, form: ArchiveFormat, name: str) -> dict[str, str]:
    """Path in the archive (forward slashes, no leading `./`) to lower-case hex sha256; `name` is for messages."""
    members = _Members(name)
    try:
        match form:
            case "zip":
                _read_zip(file, members)
            case "tar.gz":
                with gzip.open(file) as unpacked:
                    _read_tar(unpacked, members)
            case "tar":
                with file.open("rb") as plain:
                    _read_tar(plain, members)
    except _UNREADABLE as error:
        raise VerificationError(f"{name} is not an archive that can be read: {error}") from error
    return dict(sorted(members.digests.items()))


class _Members:
    """What was found so far, and the bounds that it must keep."""

    def __init__(self, name: str) -> None:
        self.digests: dict[str, str] = {}
        self._name = name
        self._folded: set[str] = set()
        self._count = 0
        self._bytes = 0

    def path(self, written: str) -> str:
        """A member's name as a path below the archive's root; anything else is refused."""
        self._count += 1
        if self._count > LIMIT_MEMBERS:
            raise VerificationError(f"{self._name} has more than {LIMIT_MEMBERS} members")
        path = written.removesuffix("/")
        while path.startswith("./"):
            path = path.removeprefix("./")
        if _leads_out(path):
            raise self.refuse(written, "a path outside of the folder it is unpacked into")
        if path not in _ROOT and not _is_named(path):
            raise self.refuse(written, "a name that Windows cannot have")
        return path

    def add(self, path: str, content: IO[bytes]) -> None:
        """Hash a regular file. Windows sees `A` and `a` as one: one of two digests would be of a file that is gone."""
        if path in _ROOT:
            raise self.refuse(path, "a name that Windows cannot have")
        if path.casefold() in self._folded:
            raise self.refuse(path, "a name that it has already")
        self._folded.add(path.casefold())
        digest = hashlib.sha256()
        while chunk := content.read(_CHUNK_BYTES):
            self.count(len(chunk))
            digest.update(chunk)
        self.digests[path] = digest.hexdigest()

    def count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > LIMIT_BYTES:
            raise VerificationError(f"{self._name} unpacks to more than {LIMIT_BYTES / 2**30:g} GiB")

    def refuse(self, written: str, why: str) -> VerificationError:
        return VerificationError(f"{self._name} holds {written!a}: {why}")


def is_member(path: str) -> bool:
    """Whether this is the path of a file below the folder that its archive is unpacked into, on Windows too."""
    return not _leads_out(path) and _is_named(path)


def _leads_out(path: str) -> bool:
    # A colon is a drive or, further in, one of NTFS's streams.
    return path.startswith("/") or "\\" in path or ":" in path or ".." in path.split("/")


def _is_named(path: str) -> bool:
    """Whether Windows takes every part of the path as a name; an empty part is none, nor is one that is a dot."""
    return _is_text(path) and not any(_NOT_A_NAME.fullmatch(part) for part in path.split("/"))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Bounded:
    """What tarfile reads from: it reads a long name whole, whatever size its header announces."""

    def __init__(self, inner: gzip.GzipFile | BinaryIO) -> None:
        self._inner = inner

    def read(self, size: int) -> bytes:
        if size > _LARGEST_READ:
            raise tarfile.ReadError("a header is too large")
        return self._inner.read(size)

    def seek(self, offset: int) -> int:
        if offset > LIMIT_BYTES + LIMIT_MEMBERS * tarfile.BLOCKSIZE * 2:
            raise tarfile.ReadError("it is too large")
        return self._inner.seek(offset)

    def tell(self) -> int:
        return self._inner.tell()


def _read_tar(unpacked: gzip.GzipFile | BinaryIO, members: _Members) -> None:
    with tarfile.open(fileobj=cast("IO[bytes]", _Bounded(unpacked)), mode="r:") as archive:
        for member in archive:
            path = members.path(member.name)
            if member.isdir():
                continue
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                raise members.refuse(member.name, "a link or a device")
            with content:
                members.add(path, content)


def _read_zip(file: Path, members: _Members) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            path = members.path(member.orig_filename)
            mode = member.external_attr >> 16 if member.create_system == 3 else 0
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise members.refuse(member.orig_filename, "a link or a device")
            if member.flag_bits & 1:
                raise members.refuse(member.orig_filename, "encrypted")
            if member.is_dir():
                continue
            with archive.open(member) as content:
                members.add(path, content)
