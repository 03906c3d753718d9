"""Unpacks an archive on the disk as tar.exe does: what the host reads of it, by path."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import VerificationError
from imagegen.inspect.archive import find_type, read_archive
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.files import Files

_FORMS: Final = ("zip", "tar.gz", "tar")


def unpack(files: Files, archive: str, strip: int) -> dict[str, bytes | None]:
    """Bytes by path without the stripped parts."""
    data = files.read(archive)
    form = find_type(data[:1024])
    if form not in _FORMS:
        raise RefusedByWindows("tar.exe: unrecognized or damaged archive")
    unpacked: dict[str, bytes | None] = {}
    try:
        for member in read_archive(io.BytesIO(data), form, "the archive"):
            # tar.exe counts the `./` before a path as a part.
            parts = [*(["."] if member.is_dotted else []), *member.path.split("/")]
            if len(parts) > strip:
                unpacked["\\".join(part for part in parts[strip:] if part != ".")] = b"".join(member.chunks())
    except VerificationError as error:
        raise RefusedByWindows(f"tar.exe: unrecognized or damaged archive: {error}") from error
    return unpacked
