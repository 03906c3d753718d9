"""Tells a downloaded file's format by its first bytes, and checks that the plan can use it. Reads the file's start."""

import re
from pathlib import Path
from typing import Final, Literal

from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import VerificationError

ArchiveFormat = Literal["zip", "tar.gz", "tar"]

# The bytes that a format has at an offset. The mark of a tar stands after the fields of its first member.
_ARCHIVES: Final[tuple[tuple[ArchiveFormat, int, bytes], ...]] = (
    ("zip", 0, b"PK\x03\x04"),
    ("zip", 0, b"PK\x05\x06"),
    ("tar.gz", 0, b"\x1f\x8b"),
    ("tar", 257, b"ustar"),
)
_MSI: Final = bytes.fromhex("d0cf11e0a1b11ae1")
_WEB_PAGE: Final = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_EXPECTED: Final = {
    "archive": "an archive (.zip, .tar.gz or .tar)",
    "package": "an MSI package",
    "file": "the file itself",
}


def check_form(request: ArtifactRequest, file: Path) -> ArchiveFormat | None:
    """Return the format of an archive. A file that the plan cannot use is an error."""
    with file.open("rb") as stream:
        start = stream.read(1024)
    is_page = _WEB_PAGE.match(start) is not None
    archive = next((form for form, offset, mark in _ARCHIVES if start[offset:].startswith(mark)), None)
    is_usable = {"archive": archive is not None, "package": start.startswith(_MSI), "file": not is_page}
    if not is_usable[request.form]:
        names = {
            "empty": not start,
            "a web page": is_page,
            f"a .{archive} archive": archive,
            "an MSI package": start.startswith(_MSI),
            "a Windows program": start.startswith(b"MZ"),
            f"a file that begins with {start[:24].decode('latin-1')!a}": True,
        }
        advice = "check what the URL leads to"
        if is_page:
            advice = "a login page or a web filter answered: open the URL in a browser"
        found = next(name for name, holds in names.items() if holds)
        raise VerificationError(
            f"{request.name}: {shown_url(request.url)} is {found}, not {_EXPECTED[request.form]}",
            hint=f"{advice}, or set overrides.{request.override} to the URL of the file",
        )
    return archive if request.form == "archive" else None
