"""Tells a downloaded file's format by its first bytes, and checks that the plan can use it. Reads the file's start."""

import re
from pathlib import Path
from typing import Final, Literal

from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import VerificationError

ArchiveFormat = Literal["zip", "tar.gz", "tar"]

_START_BYTES: Final = 1024
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_GZIP: Final = b"\x1f\x8b"
# The mark of a tar stands after the fields of its first member.
_TAR: Final = (257, b"ustar")
_MSI: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_PROGRAM: Final = b"MZ"
_WEB_PAGE: Final = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_QUOTED_BYTES: Final = 24
_EXPECTED: Final = {
    "archive": "an archive (.zip, .tar.gz or .tar)",
    "package": "an MSI package",
    "file": "the file itself",
}


def check_form(request: ArtifactRequest, file: Path) -> ArchiveFormat | None:
    """Return the format of an archive. A file that the plan cannot use is an error."""
    with file.open("rb") as stream:
        start = stream.read(_START_BYTES)
    archive = _archive_format(start)
    is_usable = {
        "archive": archive is not None,
        "package": start.startswith(_MSI),
        "file": not _is_web_page(start),
    }
    if not is_usable[request.form]:
        raise VerificationError(
            f"{request.name}: {shown_url(request.url)} is {_describe(start)}, not {_EXPECTED[request.form]}",
            hint=_hint(request, start),
        )
    return archive if request.form == "archive" else None


def _archive_format(start: bytes) -> ArchiveFormat | None:
    offset, mark = _TAR
    if start.startswith(_ZIP):
        return "zip"
    if start.startswith(_GZIP):
        return "tar.gz"
    return "tar" if start[offset:].startswith(mark) else None


def _is_web_page(start: bytes) -> bool:
    return _WEB_PAGE.match(start) is not None


def _describe(start: bytes) -> str:
    """What messages call the file."""
    if not start:
        return "empty"
    if _is_web_page(start):
        return "a web page"
    archive = _archive_format(start)
    if archive is not None:
        return f"a .{archive} archive"
    if start.startswith(_MSI):
        return "an MSI package"
    if start.startswith(_PROGRAM):
        return "a Windows program"
    return f"a file that begins with {start[:_QUOTED_BYTES].decode('latin-1')!a}"


def _hint(request: ArtifactRequest, start: bytes) -> str:
    override = f"set overrides.{request.override} to the URL of the file"
    if _is_web_page(start):
        return f"a login page or a web filter answered: open the URL in a browser, or {override}"
    return f"check what the URL leads to, or {override}"
