"""The software bill of materials of an image, in the form of CycloneDX (https://cyclonedx.org). Pure.

Its components are Windows as the machine reported it, the artifacts with their files on the disk, and the container
images. It has only times and digests of the manifest, so equal manifests have equal documents: an SBOM is verified by
making it again. The manifest says which product of the catalogue an artifact is. An artifact that is none, or that came
from another address, is a generic package (https://github.com/package-url/purl-spec), named with its address and
digest.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import uuid
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote

from cyclonedx.exception import CycloneDxException
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType, Pedigree
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot7
from cyclonedx.spdx import is_supported_id
from packageurl import PackageURL

from imagegen.base.errors import Problem
from imagegen.catalog.products import find_product
from imagegen.fetch.lock import LockedBase
from imagegen.record.diff import differences
from imagegen.record.manifest import ImageManifest, RecordedArtifact
from imagegen.record.reading import ATTEST_AGAIN, InvalidDocument, parse_json, stating
from imagegen.record.report import GuestReport
from imagegen.record.store import HINT, ManifestFile, read_guest_report, windows_version
from imagegen.steps.image_name import ImageName

_SCHEME: Final = "https://"


@dataclasses.dataclass(frozen=True)
class Release:
    """The release that an artifact is."""

    version: str
    purl: str
    supplier: str
    licence: str


def find_release(artifact: RecordedArtifact) -> Release | None:
    """The release of the product that the manifest names. None if it names none that the catalogue has."""
    product, version = find_product(artifact.product or ""), artifact.version
    if product is None or version is None:
        return None
    return Release(version, product.purl.replace("{version}", version), product.supplier, product.licence)


def is_public(artifact: RecordedArtifact) -> bool:
    """Whether the bytes came from the public address, or from a mirror of it, which has the address in its own."""
    release = artifact.release
    return release is None or artifact.url.endswith(f"/{release.removeprefix(_SCHEME)}")


def artifact_purl(name: str, artifact: RecordedArtifact) -> PackageURL:
    """The package URL of an artifact: that of its release, if the bytes are the public ones."""
    release = find_release(artifact)
    if release is not None and is_public(artifact):
        return PackageURL.from_string(release.purl)
    return PackageURL(
        "generic",
        name=name,
        version=release.version if release else None,
        qualifiers={"checksum": f"sha256:{artifact.sha256}", "download_url": artifact.url},
    )


def image_purl(name: str, digest: str) -> PackageURL:
    """The package URL of a container image, by its whole name and the digest by which it is used."""
    parts = ImageName.parse(name)
    repository = f"{parts.registry}/{parts.repository}"
    return PackageURL(
        "oci",
        name=parts.repository.rpartition("/")[2].lower(),
        version=digest,
        qualifiers={"repository_url": repository, **({"tag": parts.tag} if parts.tag else {})},
    )


def base_purl(provider: str, base: LockedBase) -> PackageURL:
    """A package URL for a base image: what identifies it in its cloud, and its place there."""
    return PackageURL("generic", provider, "base-image", qualifiers={**base.identity, **base.place})


def base_name(base: LockedBase) -> str:
    """A base image in words, from what identifies it."""
    return " ".join(value for _, value in sorted(base.identity.items()))


_PREFIX: Final = "imagegen:"
_MICROSOFT: Final = OrganizationalEntity(name="Microsoft Corporation")
# The name space of the serial numbers: any fixed UUID.
_SERIAL_NUMBERS: Final = uuid.UUID("5b8f9e0e-3b8e-5d0a-9c53-5a3c6a0f4d11")


def make_sbom(file: ManifestFile) -> bytes:
    """The SBOM of the image of a manifest. A manifest with values that an SBOM cannot have is an InvalidDocument."""
    try:
        # The library only warns of a version that is too long for the form.
        with stating(str(file.path), HINT), warnings.catch_warnings(action="error", category=UserWarning):
            return _made(file)
    except (CycloneDxException, UserWarning) as error:
        message = f"has a value that an SBOM cannot have: {error}"
        raise InvalidDocument([Problem(str(file.path), 0, "", message, HINT)]) from None


def _made(file: ManifestFile) -> bytes:
    manifest = file.manifest
    image = _image(file)
    tool = Component(name="imagegen", version=manifest.imagegen_version, type=ComponentType.APPLICATION)
    components = [_windows(file), *_artifacts(manifest, read_guest_report(file)), *_container_images(manifest)]
    bom = Bom(
        serial_number=uuid.uuid5(_SERIAL_NUMBERS, file.sha256),
        metadata=BomMetaData(
            timestamp=datetime.datetime.fromisoformat(manifest.created),
            tools=ToolRepository(components=[tool]),
            component=image,
        ),
        components=components,
    )
    bom.register_dependency(image, components)
    return JsonV1Dot7(bom).output_as_string(indent=2).encode() + b"\n"


def _image(file: ManifestFile) -> Component:
    manifest = file.manifest
    return Component(
        type=ComponentType.OPERATING_SYSTEM,
        name=manifest.name,
        version=manifest.published.version if manifest.published else None,
        bom_ref="node-image",
        properties=_properties(
            [
                ("image-id", manifest.image_id),
                ("provider", manifest.provider),
                ("target", manifest.target),
                ("manifest-sha256", file.sha256),
                *(("cloud-image", f"{image.region} {image.id}") for image in file.images),
            ]
        ),
    )


def _windows(file: ManifestFile) -> Component:
    """Windows, as the machine reported it, and the base image from which it came."""
    manifest, report = file.manifest, read_guest_report(file)
    machine: dict[str, Any] = dict(report.machine) if report else {}
    base = Component(
        type=ComponentType.OPERATING_SYSTEM,
        name=base_name(manifest.inputs.base),
        purl=base_purl(manifest.provider, manifest.inputs.base),
        bom_ref="base-image",
    )
    updates = machine.get("updates")
    return Component(
        type=ComponentType.OPERATING_SYSTEM,
        name=str(machine.get("product") or "Windows Server"),
        version=windows_version(file),
        supplier=_MICROSOFT,
        bom_ref="windows",
        pedigree=Pedigree(ancestors=[base]),
        properties=_properties(
            [
                *((key, str(machine[key])) for key in ("edition", "installation") if machine.get(key)),
                *(("update", str(update)) for update in (updates if isinstance(updates, list) else [])),
                *([("report-missing", manifest.report_missing)] if manifest.report_missing else []),
            ]
        ),
    )


def _artifacts(manifest: ImageManifest, report: GuestReport | None) -> Iterator[Component]:
    for name, artifact in sorted(manifest.inputs.artifacts.items()):
        release, public = find_release(artifact), is_public(artifact)
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=artifact.sha256)]
        yield Component(
            type=ComponentType.APPLICATION if release else ComponentType.FILE,
            name=name,
            version=release.version if release else None,
            bom_ref=f"artifact/{name}",
            purl=artifact_purl(name, artifact),
            hashes=hashes,
            licenses=[_licence(release.licence)] if release else [],
            # The bytes of an override are those of the operator.
            supplier=OrganizationalEntity(name=release.supplier) if release and public else None,
            external_references=[
                ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(artifact.url), hashes=hashes)
            ],
            properties=_properties([*_facts(artifact, public=public), *_left_out(name, report)]),
            components=list(_files(name, artifact)),
        )


def _files(name: str, artifact: RecordedArtifact) -> Iterator[Component]:
    """What the image has of an artifact on its disk."""
    for path, file in sorted(artifact.files.items()):
        yield Component(
            type=ComponentType.FILE,
            name=path,
            bom_ref=f"artifact/{name}/{path}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)],
            properties=_properties([("size", str(file.size))] if file.size is not None else []),
        )


def _left_out(name: str, report: GuestReport | None) -> Iterator[tuple[str, str]]:
    """What the machine did not put on its disk, because the plan does not list it."""
    for resource, one in report.left_out.items() if report else ():
        if resource.partition("/archive:")[2] == name:
            yield "left-out", one.text


def _facts(artifact: RecordedArtifact, *, public: bool) -> Iterator[tuple[str, str]]:
    if artifact.release and not public:
        yield "replaces", artifact.release
    for path, one in sorted(artifact.signed.items()):
        file = f":{path}" if path else ""
        yield f"signer{file}", one.signer
        yield f"signer-sha256{file}", one.thumbprint
        if one.timestamp:
            yield f"timestamp{file}", one.timestamp


def _container_images(manifest: ImageManifest) -> Iterator[Component]:
    for name, digest in sorted(manifest.inputs.images.items()):
        yield Component(
            type=ComponentType.CONTAINER,
            name=name,
            version=digest,
            bom_ref=f"image/{name}",
            purl=image_purl(name, digest),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))],
        )


def _licence(text: str) -> DisjunctiveLicense:
    return DisjunctiveLicense(id=text) if is_supported_id(text) else DisjunctiveLicense(name=text)


def _properties(facts: Iterable[tuple[str, str]]) -> list[Property]:
    return [Property(name=f"{_PREFIX}{name}", value=value) for name, value in facts]


LIMIT_BYTES: Final = 64 * 2**20
# What another version of imagegen, of its catalogue or of the library would write otherwise about the same image.
_NOT_COMPARED: Final = frozenset(
    {*("$schema", "specVersion", "tools", "dependencies", "purl", "licenses", "supplier", "pedigree")}
)
_COMPARED_PROPERTIES: Final = frozenset(
    f"{_PREFIX}{name}" for name in ("image-id", "provider", "target", "manifest-sha256")
)


def compare_sbom(data: bytes, file: ManifestFile, shown_as: str) -> tuple[int, list[Problem]]:
    """The number of components of an SBOM, and in what it differs from the one that is made of the manifest now."""
    found = parse_json(data, shown_as, ATTEST_AGAIN)
    components = found.get("components") if isinstance(found, dict) else None
    if not isinstance(components, list):
        raise InvalidDocument([Problem(shown_as, 0, "", "is not an SBOM in the form of CycloneDX", ATTEST_AGAIN)])
    expected = _comparable(json.loads(make_sbom(file)))
    try:
        compared = differences(_comparable(found), expected, place=shown_as, source="the manifest", hint=ATTEST_AGAIN)
        return len(components), list(compared)
    except RecursionError:
        raise InvalidDocument([Problem(shown_as, 0, "", "is nested too deeply", ATTEST_AGAIN)]) from None


def _comparable(value: object) -> object:
    """A document without what is not compared."""
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    left_out = _NOT_COMPARED | ({"type", "version"} if str(value.get("bom-ref")).startswith("artifact/") else set())
    kept = {key: _comparable(item) for key, item in value.items() if key not in left_out}
    if isinstance(listed := kept.pop("properties", None), list):
        kept |= {
            str(one["name"]): one.get("value")
            for one in listed
            if isinstance(one, dict) and one.get("name") in _COMPARED_PROPERTIES
        }
    if isinstance(url := kept.get("url"), str):
        # The library quotes some characters.
        kept["url"] = unquote(url)
    return kept
