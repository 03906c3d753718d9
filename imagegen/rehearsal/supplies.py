"""Artifacts made for a rehearsal: at every address that the steps download from, bytes of the form that they expect.

What a step expects of an artifact is all that is known here; `imagegen lock` alone shows that the real one holds it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.msi import MsiService, make_msi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.steps.evaluate import Draft, EvaluatedStep


def make_supplies(evaluated: Sequence[EvaluatedStep]) -> dict[str, bytes]:
    """Bytes by address."""
    supplies = {}
    for step in evaluated:
        for draft in step.drafts:
            name = draft.fields.get("artifact")
            if isinstance(name, str):
                request = step.requests[name]
                supplies[request.url] = _bytes_for(draft, name, request.url)
    return supplies


def _bytes_for(draft: Draft, name: str, url: str) -> bytes:
    fields = draft.fields
    if draft.kind == "archive":
        folders = "".join(f"part{number}/" for number in range(fields.get("strip", 0)))
        members = {
            f"{folders}{path}".replace("\\", "/"): _program(path) for path in fields.get("expect", [f"{name}.exe"])
        }
        return _zip(members) if url.endswith(".zip") else _tar(members)
    if draft.kind == "package":
        files = {path: _program(path) for path in fields.get("files", [])}
        program = next((path for path in reversed(files) if path.lower().endswith(".exe")), "")
        services = [
            MsiService(name=item, display_name=item, command=f'"{program}" {item}')
            for item in fields.get("services", [])
        ]
        return make_msi(fields["product"], fields["version"], files, services)
    return _program(name)


def _program(name: str) -> bytes:
    return b"MZ" + f" a stand-in for {name}, made for a rehearsal\n".encode()


def _tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    # No time and no compression: the bytes, and so the lock, are the same in every rehearsal.
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=0, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in members.items():
            archive.writestr(zipfile.ZipInfo(path), data)
    return buffer.getvalue()
