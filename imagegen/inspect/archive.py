"""Opens a downloaded file as the artifacts that it is for: tells what it is by its first bytes, and computes the sha256
of each regular file in an archive.

Writes nothing, and trusts neither names nor sizes."""

import contextlib
import dataclasses
import functools
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final, Literal, get_args

from imagegen.base.errors import VerificationError
from imagegen.fetch.request import ArtifactRequest, shown_url
from imagegen.inspect.members import check_files, find_folder_and_file
from imagegen.inspect.tar_reader import BLOCK, TarMember, read_tar
from imagegen.inspect.unpacked import DAMAGED, GzipBytes, PlainBytes, UnreadableArchiveError
from imagegen.inspect.zip_reader import read_zip

ArchiveFormat = Literal["zip", "tar.gz", "tar"]
FileType = Literal[ArchiveFormat, "msi", "program", "script", "catalogue", "empty", "web page", "other"]

LIMIT_BYTES = 10 * 2**30
LIMIT_MEMBERS = 100_000
LONGEST_PATH = 1024
UNREADABLE: Final = (UnreadableArchiveError, zlib.error, OSError)

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
_ROOT: Final = "."

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


@dataclasses.dataclass(frozen=True)
class ArchiveContents:
    """The regular files of an archive, by their paths with forward slashes and without a leading `./`."""

    digests: dict[str, str]
    """The sha256 of each, in lower-case hex."""
    sizes: dict[str, int]
    dotted: Literal["all", "some"] | None
    """Which of them have `./` before their paths in the archive."""


def read_members(file: Path, form: ArchiveFormat, name: str) -> ArchiveContents:
    """The regular files of an archive. `name` is for messages."""
    digests, sizes = {}, {}
    dotted: set[bool] = set()
    for member in open_members(file, form, name):
        digest, size = hashlib.sha256(), 0
        for chunk in member.chunks():
            digest.update(chunk)
            size += len(chunk)
        digests[member.path], sizes[member.path] = digest.hexdigest(), size
        dotted.add(member.is_dotted)
    which: Literal["all", "some"] = "some" if False in dotted else "all"
    return ArchiveContents(
        dict(sorted(digests.items())), dict(sorted(sizes.items())), which if True in dotted else None
    )


def open_members(file: Path, form: ArchiveFormat, name: str) -> Iterator["OpenMember"]:
    """Each regular file of an archive, in its order. One can be read until the next is asked for."""
    with file.open("rb") as opened:
        yield from read_archive(opened, form, name)


def read_archive(opened: IO[bytes], form: ArchiveFormat, name: str) -> Iterator["OpenMember"]:
    """The same of an open file."""
    bounds = _Bounds(name)
    with _readable(name):
        for path, kind, chunks in _open_zip(opened) if form == "zip" else _open_tar(opened, form):
            if kind == "other":
                raise bounds.rejection(path, "a link or a device")
            if bounds.add_member(path, is_file=kind == "file"):
                yield OpenMember(path.removeprefix("./"), path.startswith("./"), chunks, bounds)
        bounds.check_folders()


_Opened = Iterator[tuple[str, Literal["file", "folder", "other"], Iterator[bytes]]]


def _open_zip(opened: IO[bytes]) -> _Opened:
    for member, chunks in read_zip(opened, LIMIT_MEMBERS):
        yield member.name, member.kind, chunks


def _open_tar(opened: IO[bytes], form: ArchiveFormat) -> _Opened:
    for member in tar_members(opened, form):
        yield member.name, member.kind, iter(functools.partial(member.read, 1 << 20), b"")


def tar_members(opened: IO[bytes], form: ArchiveFormat) -> Iterator[TarMember]:
    """Each member of a tar. It can be read until the next is asked for."""
    source = GzipBytes(opened) if form == "tar.gz" else PlainBytes(opened)
    return read_tar(source, LIMIT_BYTES + LIMIT_MEMBERS * BLOCK * 2)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise VerificationError(
            f"{name} cannot be read as an archive: {error}", hint=getattr(error, "hint", DAMAGED)
        ) from error


@dataclasses.dataclass
class _Bounds:
    """What was found so far in an archive. Raises an error when it exceeds the limits."""

    archive: str
    folded: dict[str, bool] = dataclasses.field(default_factory=dict)
    """The paths as Windows compares them, and whether each is a file."""
    count: int = 0
    size: int = 0

    def add_member(self, name: str, *, is_file: bool) -> bool:
        """Whether the member is a file. One that cannot be on Windows, or beside the others, is an error."""
        self.count += 1
        if self.count > LIMIT_MEMBERS:
            raise VerificationError(f"{self.archive} has more than {LIMIT_MEMBERS} members")
        path = name.removesuffix("/").removeprefix("./")
        if len(path) > LONGEST_PATH:
            raise self.rejection(f"{name[:40]}...", f"a path of more than {LONGEST_PATH} characters")
        if "\\" in path:
            raise self.rejection(name, "a path with a backslash", _BACKSLASH_HINT)
        if _leads_out(path):
            raise self.rejection(name, "a path outside the folder it is unpacked into")
        if (path != _ROOT and not _has_valid_names(path)) or (path == _ROOT and is_file):
            raise self.rejection(name, "a name that Windows does not allow")
        folded = path.casefold()
        if folded in self.folded and (is_file or self.folded[folded]):
            # Windows treats `A` and `a` as one file.
            raise self.rejection(name, "a name that another member has")
        self.folded[folded] = is_file
        return is_file

    def check_folders(self) -> None:
        """A file and a folder cannot have one name."""
        files = {path for path, is_file in self.folded.items() if is_file}
        folders = (f"{path}/" for path, is_file in self.folded.items() if not is_file)
        if both := find_folder_and_file([*files, *folders]):
            raise self.rejection(both, "a file and a folder of one name")

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
    """Without a leading `./`."""
    is_dotted: bool
    """Whether the archive has `./` before the path."""
    _content: Iterator[bytes]
    _bounds: _Bounds

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, in pieces of at most 1 MiB."""
        with _readable(self._bounds.archive):
            for chunk in self._content:
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


@dataclasses.dataclass(frozen=True)
class OpenedArtifact:
    """A downloaded artifact. If it is an archive or a tarball of images, `format` says of which form; `contents` are
    the files of an archive that is unpacked."""

    name: str
    file: Path
    format: ArchiveFormat | None = None
    contents: ArchiveContents | None = None

    @property
    def members(self) -> dict[str, str] | None:
        """The sha256 of the files of the archive."""
        return self.contents.digests if self.contents else None

    def open(self) -> Iterator[OpenMember]:
        """Each file of the archive."""
        return open_members(self.file, self.format, self.name) if self.format else iter(())


def open_artifacts(requests: Sequence[ArtifactRequest], file: Path) -> dict[str, OpenedArtifact]:
    """The file as each of these artifacts. One that the plan cannot use is an error."""
    formats = {request.name: check_form(request, file) for request in requests}
    unpacked = [request for request in requests if formats[request.name] and request.form != "image"]
    # All of them have the format of the file.
    archive = next((formats[request.name] for request in unpacked), None)
    contents = read_members(file, archive, requests[0].name) if archive else None
    for request in unpacked:
        check_files(request, contents.digests if contents else {})
    of_archives = {request.name for request in unpacked}
    return {
        request.name: OpenedArtifact(
            request.name, file, formats[request.name], contents if request.name in of_archives else None
        )
        for request in requests
    }
