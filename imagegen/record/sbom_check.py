"""Compares an SBOM with the manifest of its image. Pure.

Its models are closed and know only what `sbom.py` writes. So a component that imagegen did not write is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

import pydantic
from pydantic.alias_generators import to_camel

from imagegen.base.errors import Problem
from imagegen.inspect.archive import LIMIT_MEMBERS
from imagegen.record.differences import differences
from imagegen.record.envelope import ATTEST_AGAIN
from imagegen.record.manifest import RecordedArtifact
from imagegen.record.manifest_file import ManifestFile, windows_version
from imagegen.record.reading import parse_json, parse_model
from imagegen.steps.resource import Strict

LIMIT_BYTES: Final = 64 * 2**20
_MOST_COMPONENTS: Final = 5000


class _Part(Strict):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _Hash(_Part):
    alg: Literal["SHA-256"]
    content: str


class _Named(_Part):
    name: str


class _Property(_Part):
    name: str
    value: str


class _Reference(_Part):
    type: Literal["distribution"]
    url: str
    hashes: list[_Hash] = []


class _LicenceText(_Part):
    id: str | None = None
    name: str | None = None


class _Licence(_Part):
    license: _LicenceText


class _Component(_Part):
    type: Literal["operating-system", "application", "file", "container"]
    bom_ref: str | None = pydantic.Field(None, alias="bom-ref")
    name: str
    version: str | None = None
    purl: str | None = None
    hashes: list[_Hash] = []
    licenses: list[_Licence] = []
    supplier: _Named | None = None
    external_references: list[_Reference] = []
    pedigree: _Pedigree | None = None
    properties: list[_Property] = []
    components: Annotated[list[_Component], pydantic.Field(max_length=LIMIT_MEMBERS)] = []

    def facts(self, *names: str) -> dict[str, object]:
        """The values of these properties."""
        return {one.name: one.value for one in self.properties if one.name in names}


class _Pedigree(_Part):
    ancestors: list[_Component]


class _Tools(_Part):
    components: list[_Component]


class _Metadata(_Part):
    timestamp: str
    tools: _Tools
    component: _Component


class _Dependency(_Part):
    ref: str
    depends_on: list[str] = []


class Sbom(_Part):
    """An SBOM as imagegen writes it."""

    schema_: str = pydantic.Field("", alias="$schema")
    bom_format: Literal["CycloneDX"]
    spec_version: str
    serial_number: str
    version: int
    metadata: _Metadata
    components: Annotated[list[_Component], pydantic.Field(max_length=_MOST_COMPONENTS)]
    dependencies: Annotated[list[_Dependency], pydantic.Field(max_length=_MOST_COMPONENTS + 1)] = []


def read_sbom(data: bytes, shown_as: str) -> Sbom:
    """The SBOM. Anything else is an InvalidDocument."""
    return parse_model(parse_json(data, shown_as, ATTEST_AGAIN), Sbom, shown_as, ATTEST_AGAIN)


def compare_sbom(sbom: Sbom, file: ManifestFile, shown_as: str) -> Iterator[Problem]:
    """Each component that the manifest does not have or has otherwise."""
    yield from differences(_found(sbom), _expected(file), place=shown_as, source="the manifest", hint=ATTEST_AGAIN)


_IMAGE: Final = ("imagegen:image-id", "imagegen:manifest-sha256", "imagegen:provider", "imagegen:target")


def _found(sbom: Sbom) -> dict[str, Any]:
    image = sbom.metadata.component
    return {
        "image": {"name": image.name, **image.facts(*_IMAGE)},
        "components": {
            one.bom_ref or one.name: {"version": one.version} if one.bom_ref == "windows" else _bytes_of(one)
            for one in sbom.components
        },
        "count": len(sbom.components),
    }


def _bytes_of(component: _Component) -> dict[str, object]:
    found: dict[str, object] = {"sha256": [one.content for one in component.hashes]}
    if component.external_references:
        # The library quotes some characters.
        found["url"] = [unquote(one.url) for one in component.external_references]
    if component.components:
        found["files"] = {one.name: [each.content for each in one.hashes] for one in component.components}
        found["file count"] = len(component.components)
    return found


def _files_of(artifact: RecordedArtifact) -> dict[str, object]:
    files = {path: [file.sha256] for path, file in artifact.files.items()}
    return {"files": files, "file count": len(files)} if files else {}


def _expected(file: ManifestFile) -> dict[str, Any]:
    manifest, inputs = file.manifest, file.manifest.inputs
    components: dict[str, dict[str, object]] = {
        "windows": {"version": windows_version(file)},
        **{
            f"artifact/{name}": {"sha256": [one.sha256], "url": [unquote(one.url)], **_files_of(one)}
            for name, one in inputs.artifacts.items()
        },
        **{f"image/{name}": {"sha256": [digest.removeprefix("sha256:")]} for name, digest in inputs.images.items()},
    }
    facts = (manifest.image_id, file.sha256, manifest.provider, manifest.target)
    return {
        "image": {"name": manifest.name, **dict(zip(_IMAGE, facts, strict=True))},
        "components": components,
        "count": len(components),
    }
