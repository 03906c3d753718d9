r"""The file of Packer's powershell provisioner on the model machine: credentials of registries, and private artifacts.

Packer writes a line of variables: `$env:NAME="value"; ` (provisioner/powershell/provisioner.go at 1.16).
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pydantic

from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.steps.resource import Strict

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

FILE: Final = r"C:\Windows\Temp\imagegen-credentials.ps1"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_WHOLE: Final = re.compile(rf'(\$env:IMAGEGEN_[A-Z]+="{_BASE64}";\s*)+(\$env:(?!IMAGEGEN_)\w+="[^"]*";\s*)*', re.ASCII)
_VALUE: Final = re.compile(r'\$env:IMAGEGEN_(REGISTRIES|DOWNLOADS)="([A-Za-z0-9+/=]+)"')


class PrivateDownload(Strict):
    """The address of a private artifact, and the header for its host."""

    url: str
    authorization: str


_DOWNLOADS: Final = pydantic.TypeAdapter(dict[str, PrivateDownload])


@dataclasses.dataclass(frozen=True)
class Delivered:
    """What the file has. Only in memory."""

    registries: str = ""
    """Docker's configuration with the credentials of registries."""
    downloads: Mapping[str, PrivateDownload] = dataclasses.field(default_factory=dict)
    """By the names of the artifacts."""


def parse_file(data: bytes) -> Delivered | None:
    """What Packer's file has; None for another file."""
    text = data.decode(errors="replace")
    if not _WHOLE.fullmatch(text):
        return None
    found = dict(_VALUE.findall(text))
    values = {name: base64.b64decode(value).decode() for name, value in found.items()}
    return Delivered(values.get("REGISTRIES", ""), _DOWNLOADS.validate_json(values.get("DOWNLOADS") or "{}"))


def take_file(machine: Machine) -> Delivered:
    """What start.ps1 does first without -Check: read the file, delete it, and refuse a part of it."""
    if not machine.files.is_file(FILE):
        return Delivered()
    data = machine.files.read(FILE)
    machine.files.remove(FILE)
    delivered = parse_file(data)
    if delivered is None:
        raise RefusedByWindows(
            "Packer did not upload all credentials, because the connection was interrupted: start the build again"
        )
    return delivered
