r"""Reads the release record of a node, and compares what it says with the disk, the registry and the runtime's images.

The record is C:\ProgramData\imagegen\manifest.json (docs/guest.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

import pydantic

from imagegen.boot.sealed import ReleaseRecord, Sealed
from imagegen.rehearsal.boot.leftovers import find_leftovers
from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.installer import UNINSTALL, UNINSTALL_32
from imagegen.rehearsal.machine.programs import programs
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.steps.resource import ImageDigest, Sha256, Strict, WindowsPath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

PATH: Final = r"C:\ProgramData\imagegen\manifest.json"
# By their names in the layout: folders whose programs come with the image.
_FOLDERS: Final = ("kubernetes", "containerd", "docker", "cri_dockerd", "openssh")
# imagegen.rehearsal.artifacts writes it into the stand-in of every file.
_VERSION: Final = re.compile(r"a stand-in for [^,]*? v?([0-9][^ ,]*), made for a rehearsal")
_Text = Annotated[str, pydantic.StringConstraints(min_length=1)]


class _Product(Strict):
    product: _Text
    version: _Text


class _Artifact(Strict):
    url: _Text
    sha256: Sha256
    size: pydantic.PositiveInt
    files: dict[WindowsPath, Sha256]
    product: _Product | None


class _Windows(Strict):
    release: _Text
    edition: _Text
    build: int | None


class _Record(Strict):
    record_version: Literal[1]
    name: _Text
    image_id: Sha256
    provider: _Text
    imagegen_version: _Text
    windows: _Windows
    base_image: Annotated[dict[str, str], pydantic.Field(min_length=1)]
    versions: dict[str, _Text]
    artifacts: dict[str, _Artifact]
    images: dict[str, ImageDigest]


def look_at_sealing(machine: Machine, image: Image) -> Sealed:
    """What is left in the image, and what the record on the node that was started from it says."""
    return Sealed(
        leftovers=tuple(find_leftovers(image.machine, image.provider)), record=_look_at_record(machine, image)
    )


def _look_at_record(machine: Machine, image: Image) -> ReleaseRecord:
    if not machine.files.is_file(PATH):
        return ReleaseRecord(failure=f"there is no release record {PATH}", wrong=())
    try:
        record = _Record.model_validate_json(machine.files.read(PATH))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        return ReleaseRecord(failure=f"{PATH} is no release record: {place}: {first['msg']}", wrong=())
    found = (
        *_wrong_windows(machine, record),
        *_wrong_files(machine, record),
        *_wrong_products(machine, record),
        *_wrong_versions(machine, record),
        *_wrong_images(machine, record),
        *_unnamed(machine, image, record),
    )
    return ReleaseRecord(failure="", wrong=found)


def _wrong_windows(machine: Machine, record: _Record) -> Iterator[str]:
    if str(record.windows.build) != machine.build:
        yield f"it says build {record.windows.build} of Windows, and the node has {machine.build}"


def _wrong_files(machine: Machine, record: _Record) -> Iterator[str]:
    for path, digest in _files(record).items():
        if not machine.files.is_file(path):
            yield f"{path} is not there"
        elif hashlib.sha256(machine.files.read(path)).hexdigest() != digest:
            yield f"{path} has other bytes"


def _files(record: _Record) -> dict[str, str]:
    return {path: digest for artifact in record.artifacts.values() for path, digest in artifact.files.items()}


def _wrong_products(machine: Machine, record: _Record) -> Iterator[str]:
    registered = set(_registered(machine))
    for product in (artifact.product for artifact in record.artifacts.values()):
        if product and not any(
            name == product.product and _is_version(found, product.version) for name, found in registered
        ):
            yield f"{product.product} {product.version} is not installed"


def _registered(machine: Machine) -> Iterator[tuple[str, str]]:
    """The name and the version of each product that Windows has registered."""
    for root in (UNINSTALL, UNINSTALL_32):
        for name in machine.registry.subkeys(root):
            key = f"{root}\\{name}"
            yield machine.registry.text(key, "DisplayName") or "", machine.registry.text(key, "DisplayVersion") or ""


def _is_version(found: str, wanted: str) -> bool:
    return found == wanted or found.startswith(f"{wanted}.")


def _wrong_versions(machine: Machine, record: _Record) -> Iterator[str]:
    """Each version must be that of a program on the disk, or of a product."""
    shown = [set(_shown(machine, artifact)) for artifact in record.artifacts.values()]
    registered = {version for _, version in _registered(machine)}
    everything = registered.union(*shown)
    wrong = [
        f"no program of the node is {name} {version}"
        for name, version in record.versions.items()
        if not any(_is_of(one, version.removeprefix("v")) for one in everything)
    ]
    # A program that the operator built shows no version: as many may be unknown.
    unknown = sum(
        not (versions or artifact.product) for versions, artifact in zip(shown, record.artifacts.values(), strict=True)
    )
    yield from wrong if len(wrong) > unknown else ()


def _shown(machine: Machine, artifact: _Artifact) -> Iterator[str]:
    """The versions that the bytes of its files hold."""
    for path in artifact.files:
        if machine.files.is_file(path):
            yield from _VERSION.findall(machine.files.read(path).decode("latin-1"))


def _is_of(shown: str, wanted: str) -> bool:
    """A stand-in has the numbers only: 10.0.0.0 of 10.0.0.0p2."""
    return _is_version(shown, wanted) or bool(re.fullmatch(re.escape(shown) + "[a-z-].*", wanted))


def _wrong_images(machine: Machine, record: _Record) -> Iterator[str]:
    if not record.images:
        return
    there = {name: image.digest for name, image in machine.images.items()}
    for name, digest in record.images.items():
        if there.get(name) != digest:
            yield f"{name} is not there with the digest {digest}"


def _unnamed(machine: Machine, image: Image, record: _Record) -> Iterator[str]:
    """The programs that services of the image run, and the record does not name."""
    named = {fold(path) for path in _files(record)}
    folders = tuple(f"{fold(image.layout[name])}\\" for name in _FOLDERS)
    for path in _run_by_services(machine):
        if path.startswith(folders) and path.endswith(".exe") and path not in named:
            yield f"it does not name {path}, which a service runs"


def _run_by_services(machine: Machine) -> Iterator[str]:
    for name in machine.services.names():
        # Whether the program of a service is there at all is the matter of other checks.
        with contextlib.suppress(RefusedByWindows):
            yield from map(fold, programs(machine.files, machine.services.command(name)))
