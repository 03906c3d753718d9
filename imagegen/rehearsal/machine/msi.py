"""The stand-in for an MSI package: a compound file with a zip of what the package installs. Pure."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pydantic

from imagegen.rehearsal.signing.compound_file import NotCompoundError, make_compound_file, read_compound_file
from imagegen.steps.resource import Strict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PAYLOAD = "Payload"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: equal content gives equal bytes
TABLES = "tables.json"


class MsiService(Strict):
    """A service of the package, and whether the installation starts it."""

    name: str
    display_name: str
    command: str
    start: str = "automatic"
    starts: bool = False
    administrator: str | None = None
    """The account of the service, which the installation makes. Without one, the service runs as LocalSystem."""
    system_property: str | None = None
    """If this property is set, the installation makes no account, and the service runs as LocalSystem."""

    def account(self, properties: Mapping[str, str]) -> str | None:
        """The account that an installation with these properties makes."""
        return None if properties.get(self.system_property or "") else self.administrator


class Tables(Strict):
    """The package's tables. `paths` are in the order of the payload's members."""

    product: str
    version: str
    paths: tuple[str, ...]
    services: tuple[MsiService, ...]
    folders: tuple[str, ...] = ()


class NotAPackageError(ValueError):
    """These bytes are not a package."""


def make_msi(
    product: str,
    version: str,
    files: Mapping[str, bytes],
    services: Sequence[MsiService],
    folders: Sequence[str] = (),
) -> bytes:
    """A package that installs `files` (by Windows path), empty `folders` and `services`."""
    tables = Tables(
        product=product, version=version, paths=tuple(files), services=tuple(services), folders=tuple(folders)
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as payload:
        payload.writestr(zipfile.ZipInfo(TABLES, EPOCH), tables.model_dump_json())
        for index, data in enumerate(files.values()):
            payload.writestr(zipfile.ZipInfo(str(index), EPOCH), data)
    return make_compound_file({_PAYLOAD: buffer.getvalue()})


def read_msi(data: bytes) -> tuple[Tables, dict[str, bytes]]:
    """Tables and files of a package."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_compound_file(data)[_PAYLOAD])) as payload:
            tables = Tables.model_validate_json(payload.read(TABLES))
            return tables, {path: payload.read(str(index)) for index, path in enumerate(tables.paths)}
    except NotCompoundError as error:
        raise NotAPackageError(str(error)) from error
    except (zipfile.BadZipFile, KeyError, pydantic.ValidationError) as error:
        raise NotAPackageError(f"holds no payload: {error}") from error
