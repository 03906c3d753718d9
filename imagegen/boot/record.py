r"""Reads the release record of a node, and compares it with the disk, the registry and the runtime's images.

The record is C:\ProgramData\imagegen\manifest.json (docs/guest.md).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final, Literal

import pydantic

from imagegen.boot.check import Check, say, some
from imagegen.boot.cloudbase_init import words
from imagegen.boot.guarded import layout_of
from imagegen.steps.resource import ImageDigest, Sha256, Strict, WindowsPath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.boot.node import Finding, Node

PATH: Final = r"C:\ProgramData\imagegen\manifest.json"
_UNINSTALL: Final = r"Microsoft\Windows\CurrentVersion\Uninstall"
_PRODUCTS: Final = (rf"HKLM:\SOFTWARE\{_UNINSTALL}", rf"HKLM:\SOFTWARE\WOW6432Node\{_UNINSTALL}")
_WINDOWS: Final = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
# By their names in the layout: folders whose programs come with the image; and services that run them.
_FOLDERS: Final = ("kubernetes", "containerd", "docker", "cri_dockerd", "openssh")
_SERVICES: Final = ("kubelet", "containerd", "docker", "cri-dockerd", "sshd", "csi-proxy", "flanneld", "kube-proxy")
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


def _record(node: Node) -> Iterator[Finding]:
    data = node.read(PATH)
    if data is None:
        yield say(f"there is no release record {PATH}")
        return
    try:
        record = _Record.model_validate_json(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        yield say(f"{PATH} is no release record: {place}: {first['msg']}")
        return
    if wrong := [*_wrong_files(node, record), *_wrong_products(node, record), *_wrong_images(node, record)]:
        yield say(f"the release record is wrong: {some(wrong)}")


def _wrong_files(node: Node, record: _Record) -> Iterator[str]:
    build = str(node.value(_WINDOWS, "CurrentBuildNumber") or "")
    if str(record.windows.build) != build:
        yield f"it says build {record.windows.build} of Windows, and the node has {build}"
    files = {path: digest for artifact in record.artifacts.values() for path, digest in artifact.files.items()}
    for path, digest in files.items():
        data = node.read(path)
        if data is None:
            yield f"{path} is not there"
        elif hashlib.sha256(data).hexdigest() != digest:
            yield f"{path} has other bytes"
    named = {path.lower() for path in files}
    folders = tuple(f"{layout_of(node.spec)[name].lower()}\\" for name in _FOLDERS)
    for program in _run_by_services(node):
        if program.startswith(folders) and program.endswith(".exe") and program not in named:
            yield f"it does not name {program}, which a service runs"


def _run_by_services(node: Node) -> Iterator[str]:
    """The words of the services' command lines that can be programs, in lower case."""
    for name in _SERVICES:
        if service := node.service(name):
            yield from (word.lower() for word in words(f"{service.command} {service.parameters}"))


def _wrong_products(node: Node, record: _Record) -> Iterator[str]:
    keys = [rf"{root}\{name}" for root in _PRODUCTS for name in node.subkeys(root)]
    registered = {(str(node.value(key, "DisplayName")), str(node.value(key, "DisplayVersion"))) for key in keys}
    for product in (artifact.product for artifact in record.artifacts.values()):
        if product and not any(
            name == product.product and f"{found}.".startswith(f"{product.version}.") for name, found in registered
        ):
            yield f"{product.product} {product.version} is not installed"


def _wrong_images(node: Node, record: _Record) -> Iterator[str]:
    for name, digest in record.images.items():
        if node.image_digest(name) != digest:
            yield f"{name} is not there with the digest {digest}"


CHECKS: Final = (Check("release-record", "the release record says what is on the node", _record),)
