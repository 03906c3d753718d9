"""Tells what a downloaded file is by its first bytes, and computes the sha256 of each regular file in an archive.

Writes nothing, and trusts neither names nor sizes."""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal, cast, get_args

from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import VerificationError

ArchiveFormat = Literal["zip", "tar.gz", "tar"]
FileType = Literal[ArchiveFormat, "msi", "program", "script", "catalogue", "empty", "web page", "other"]

LIMIT_BYTES = 10 * 2**30
LIMIT_MEMBERS = 100_000
LONGEST_PATH = 1024

# A header or a directory of this size is an attack on memory: it holds names, not files.
_LARGEST_READ = 16 << 20
_ALL_HEADERS = 64 << 20
_BLOCKS_OF_A_MEMBER = 2000
UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    # zipfile and tarfile raise these for numbers, names and methods of compression that they cannot use.
    ValueError,
    RuntimeError,
    struct.error,
)
# Windows drops a trailing dot or blank, and takes a device's name with any extension for the device. A surrogate is no
# character of Unicode.
_INVALID_NAME = re.compile(
    r'|.*[\x00-\x1f\x7f<>"|?*\ud800-\udfff].*|.*[. ]'
    r"|(conin\$|conout\$|con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3]) *(\..*)?",
    re.DOTALL | re.IGNORECASE,
)
_BACKSLASH_HINT: Final = (
    "Compress-Archive of Windows PowerShell writes them: pack the files with PowerShell 7, or with "
    "`tar.exe -a -c -f FILE.zip FOLDER`"
)
# The archive's own root, which many archives list as a folder.
_ROOT = ("", ".")

# The bytes that a format has at an offset. The mark of a tar stands after the fields of its first member.
_MARKS: Final[tuple[tuple[FileType, int, bytes], ...]] = (
    ("zip", 0, b"PK\x03\x04"),
    ("zip", 0, b"PK\x05\x06"),
    ("tar.gz", 0, b"\x1f\x8b"),
    ("tar", 257, b"ustar"),
    ("msi", 0, bytes.fromhex("d0cf11e0a1b11ae1")),
    ("program", 0, b"MZ"),
)
NAMES: Final[dict[FileType, str]] = {
    "empty": "empty",
    "web page": "a web page",
    "zip": "a .zip archive",
    "tar.gz": "a .tar.gz archive",
    "tar": "a .tar archive",
    "msi": "an MSI package",
    "program": "a Windows program",
    "script": "a PowerShell script",
    "catalogue": "a security catalogue",
}
_ARCHIVES: Final[tuple[ArchiveFormat, ...]] = get_args(ArchiveFormat)
_WEB_PAGE: Final = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
# How each member begins in the directory of a zip.
_LISTED: Final = b"PK\x01\x02"
_EXPECTED: Final = {
    "archive": "an archive (.zip, .tar.gz or .tar)",
    "image": "a tarball of a container image (.tar or .tar.gz)",
    "package": "an MSI package",
    "file": "the file itself",
}
# Their first bytes are those of a program.
_BINARIES: Final = (".exe", ".dll", ".sys")


def find_type(start: bytes) -> FileType:
    """What a file is, by its first 1024 bytes."""
    if not start:
        return "empty"
    if _WEB_PAGE.match(start):
        return "web page"
    marked = (kind for kind, offset, mark in _MARKS if start[offset:].startswith(mark))
    return next(marked, "other")


def check_form(request: ArtifactRequest, file: Path) -> ArchiveFormat | None:
    """Return the format of an archive or a tarball that is opened. A file that the plan cannot use is an error."""
    with file.open("rb") as stream:
        start = stream.read(1024)
    kind = find_type(start)
    archive = kind if kind in _ARCHIVES else None
    if not _is_usable(request, kind):
        advice = "check what the URL leads to"
        if kind == "web page":
            advice = "a login page or a web filter answered: open the URL in a browser"
        found = NAMES.get(kind, f"a file that begins with {start[:24].decode('latin-1')!a}")
        raise VerificationError(
            f"{request.name}: {shown_url(request.url)} is {found}, {_expected(request)}",
            hint=f"{advice}, or set {request.key} to the URL of the file",
        )
    return archive if request.may_be_archive or request.form == "image" else None


def _is_usable(request: ArtifactRequest, kind: FileType) -> bool:
    is_archive = kind in _ARCHIVES
    if request.form == "image":
        return kind in ("tar", "tar.gz")
    if request.form == "package":
        return kind == "msi"
    if is_archive or not request.may_be_plain:
        return is_archive
    # One file of an archive will do, or it was wanted from the start.
    return kind == "program" if request.files[:1] and _is_binary(request.files[0].name) else kind != "web page"


def _is_binary(path: str) -> bool:
    return path.lower().endswith(_BINARIES)


def _expected(request: ArtifactRequest) -> str:
    if request.is_one_file:
        return f"neither {request.files[0].name} nor {_EXPECTED['archive']} with it"
    names = ", ".join(file.name for file in request.files)
    return f"not {_EXPECTED[request.form]}{f' with {names}' if names else ''}"


def read_members(file: Path, form: ArchiveFormat, name: str) -> dict[str, str]:
    """Path in the archive (forward slashes, no leading `./`) to lower-case hex sha256; `name` is for messages."""
    digests = {}
    for member in open_members(file, form, name):
        digest = hashlib.sha256()
        for chunk in member.chunks():
            digest.update(chunk)
        digests[member.path] = digest.hexdigest()
    return dict(sorted(digests.items()))


def open_members(file: Path, form: ArchiveFormat, name: str) -> Iterator["OpenMember"]:
    """Each regular file of an archive, in its order. One can be read until the next is asked for."""
    bounds = _Bounds(name)
    with _readable(name):
        if form == "zip":
            yield from _open_zip(file, bounds)
        else:
            with gzip.open(file) if form == "tar.gz" else file.open("rb") as unpacked:
                yield from _open_tar(unpacked, bounds)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise VerificationError(f"{name} cannot be read as an archive: {error}") from error


@dataclasses.dataclass
class _Bounds:
    """What was found so far in an archive. Raises an error when it exceeds the limits."""

    archive: str
    folded: set[str] = dataclasses.field(default_factory=set)
    count: int = 0
    size: int = 0

    def check_path(self, name: str) -> str:
        """The member's path below the archive's root. Any other name is an error."""
        self.count += 1
        if self.count > LIMIT_MEMBERS:
            raise VerificationError(f"{self.archive} has more than {LIMIT_MEMBERS} members")
        path = re.sub(r"^(\./)+", "", name.removesuffix("/"))
        if len(path) > LONGEST_PATH:
            raise self.rejection(f"{name[:40]}...", f"a path of more than {LONGEST_PATH} characters")
        if "\\" in path:
            raise self.rejection(name, "a path with a backslash", _BACKSLASH_HINT)
        if _leads_out(path):
            raise self.rejection(name, "a path outside the folder it is unpacked into")
        if path not in _ROOT and not _has_valid_names(path):
            raise self.rejection(name, "a name that Windows does not allow")
        return path

    def check_file(self, path: str) -> None:
        """Windows treats `A` and `a` as one file, so two such members are an error."""
        if path in _ROOT:
            raise self.rejection(path, "a name that Windows does not allow")
        if path.casefold() in self.folded:
            raise self.rejection(path, "a name that another member has")
        self.folded.add(path.casefold())

    def add(self, size: int) -> None:
        self.size += size
        if self.size > LIMIT_BYTES:
            raise VerificationError(f"{self.archive} unpacks to more than {LIMIT_BYTES / 2**30:g} GiB")

    def rejection(self, name: str, reason: str, hint: str = "") -> VerificationError:
        return VerificationError(f"{self.archive} holds {name!a}: {reason}", hint=hint)


@dataclasses.dataclass(frozen=True)
class OpenMember:
    """A regular file of an archive. No size that the archive announces is trusted."""

    path: str
    _content: IO[bytes]
    _bounds: _Bounds

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, in pieces of at most 1 MiB."""
        with _readable(self._bounds.archive):
            while chunk := self._content.read(1 << 20):
                self._bounds.add(len(chunk))
                yield chunk


def is_member(path: str) -> bool:
    """Whether a file with this path stays below the folder that its archive is unpacked into, on Windows too."""
    return not _leads_out(path) and _has_valid_names(path)


def _leads_out(path: str) -> bool:
    # A colon is a drive or, further in, one of NTFS's streams.
    return path.startswith("/") or "\\" in path or ":" in path or ".." in path.split("/")


def _has_valid_names(path: str) -> bool:
    """Whether every part of the path is a valid name on Windows."""
    return not any(_INVALID_NAME.fullmatch(part) for part in path.split("/"))


class Bounded:
    """A file for tarfile with limits: it reads long names and attributes whole, whatever their headers announce."""

    def __init__(self, inner: gzip.GzipFile | BinaryIO) -> None:
        self._inner = inner
        self._blocks = 0
        self._headers = 0
        self._in_content = False

    def read(self, size: int) -> bytes:
        if size > _LARGEST_READ:
            raise tarfile.ReadError("a header is too large")
        if not self._in_content:
            # A map of the holes in a file is read in blocks.
            self._blocks += 1
            self._headers += size if size > tarfile.BLOCKSIZE else 0
            if self._blocks > _BLOCKS_OF_A_MEMBER or self._headers > _ALL_HEADERS:
                raise tarfile.ReadError("its headers are too large")
        return self._inner.read(size)

    def seek(self, offset: int) -> int:
        if offset > LIMIT_BYTES + LIMIT_MEMBERS * tarfile.BLOCKSIZE * 2:
            raise tarfile.ReadError("it is too large")
        return self._inner.seek(offset)

    def tell(self) -> int:
        return self._inner.tell()

    @contextlib.contextmanager
    def content(self) -> Iterator[None]:
        """What is read meanwhile is the content of a file, which another limit holds."""
        self._in_content, self._blocks = True, 0
        try:
            yield
        finally:
            self._in_content = False


def tar_members(unpacked: Bounded) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Each member of a tar, with its content if it is a regular file. It can be read until the next is asked for."""
    with tarfile.open(fileobj=cast("IO[bytes]", unpacked), mode="r:") as archive:
        while member := archive.next():
            # tarfile keeps them all: some million members without content would fill the memory.
            archive.members.clear()  # type: ignore[attr-defined]  # typeshed has no entry for it
            content = archive.extractfile(member) if member.isfile() else None
            with unpacked.content(), content or contextlib.nullcontext():
                yield member, content


def _open_tar(unpacked: gzip.GzipFile | BinaryIO, bounds: _Bounds) -> Iterator[OpenMember]:
    for member, content in tar_members(Bounded(unpacked)):
        path = bounds.check_path(member.name)
        if member.isdir():
            continue
        if content is None:
            raise bounds.rejection(member.name, "a link or a device")
        bounds.check_file(path)
        yield OpenMember(path, content, bounds)


class _ZipFile(io.BufferedReader):
    """A file for zipfile with a limit: zipfile reads the whole directory, however many members that lists."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LARGEST_READ:
            raise zipfile.BadZipFile("its directory is too large")
        data = super().read(size)
        if data.count(_LISTED) > LIMIT_MEMBERS:
            raise zipfile.BadZipFile(f"it has more than {LIMIT_MEMBERS} members")
        return data


def _open_zip(file: Path, bounds: _Bounds) -> Iterator[OpenMember]:
    with _ZipFile(io.FileIO(file)) as opened, zipfile.ZipFile(opened) as archive:
        for member in archive.infolist():
            path = bounds.check_path(member.orig_filename)
            mode = member.external_attr >> 16 if member.create_system == 3 else 0
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise bounds.rejection(member.orig_filename, "a link or a device")
            if member.flag_bits & 1:
                raise bounds.rejection(member.orig_filename, "encrypted")
            if member.is_dir():
                continue
            bounds.check_file(path)
            with archive.open(member) as content:
                yield OpenMember(path, content, bounds)
