"""Unpacks an archive on the disk as tar.exe does: the real bytes of a tar, tar.gz or zip, by path."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.files import Files

UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, ValueError)


def unpack(files: Files, archive: str, strip: int) -> dict[str, bytes | None]:
    """Bytes by path without the stripped parts, None for a folder. Of two members with one path, the last counts."""
    named = ((_stripped(name, strip), data) for name, data in _members(files.read(archive)))
    return {path: data for path, data in named if path}


def _members(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The name and bytes of each member, None for a folder."""
    members = _zip_members if data[:4] == b"PK\x03\x04" else _tar_members
    try:
        yield from list(members(data))
    except UNREADABLE as error:
        raise RefusedByWindows(f"tar.exe: unrecognized or damaged archive: {error}") from error


def _zip_members(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            yield entry.filename, None if entry.is_dir() else archive.read(entry)


def _tar_members(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    # The tar.exe of Windows Server 2019 reads no other compression.
    compression = "gz" if data[:2] == b"\x1f\x8b" else ""
    with tarfile.open(fileobj=io.BytesIO(data), mode=f"r:{compression}") as archive:  # type: ignore[call-overload] # the stubs want a literal mode
        for entry in archive:
            if entry.isdir():
                yield entry.name, None
            elif entry.isreg():
                content = archive.extractfile(entry)
                yield entry.name, content.read() if content else b""
            else:
                raise RefusedByWindows(
                    f"tar.exe: {entry.name} is a link or a device, which the rehearsal does not make"
                )


def _stripped(name: str, strip: int) -> str:
    """Strip parts as tar.exe counts them: every slash ends a part, '.' counts too."""
    rest = name.replace("\\", "/")
    if rest.startswith("/") or ":" in rest or ".." in rest.split("/"):
        raise RefusedByWindows(f"tar.exe: the member {name} leads out of the folder")
    for _ in range(strip):
        _, _, rest = rest.partition("/")
    return "\\".join(part for part in rest.split("/") if part not in ("", "."))
