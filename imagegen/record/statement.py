"""The in-toto statement about a manifest, with the provenance of SLSA: from what the image was made, and by what. Pure.

https://github.com/in-toto/attestation/blob/main/spec/v1 and https://slsa.dev/spec/v1.0/provenance. Nobody can compute
the digest of an image in a cloud. So the statement has two kinds of subjects: the manifest with the digest of its
bytes, which every tool can compute, and each image with its id in the cloud and its identity, which is a tag of it.
"""

import json
from typing import Annotated, Any, Final, Literal, Self

import pydantic
from pydantic.alias_generators import to_camel

from imagegen.record.manifest import ImageManifest, Json
from imagegen.record.manifest_file import HINT, ManifestFile
from imagegen.record.package_urls import base_purl, image_purl
from imagegen.record.reading import stating
from imagegen.steps.resource import Strict

MANIFEST_NAME: Final = "manifest.json"
"""The name of the manifest among the subjects, whatever its file is called."""
SBOM_NAME: Final = "sbom.cdx.json"
_CLOUD_ID: Final = "cloudImageId"
_IDENTITY: Final = "imagegenImageId"
_BUILDER: Final = "urn:imagegen:builder"
_LONGEST: Final = 4096

Text = Annotated[str, pydantic.StringConstraints(max_length=_LONGEST)]
DigestSet = Annotated[dict[Text, Text], pydantic.Field(min_length=1, max_length=8)]


class _Part(Strict):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Descriptor(_Part):
    """A resource: by its digests, its address, or both."""

    name: Text
    uri: Text | None = None
    digest: DigestSet | None = None
    media_type: Text | None = None


class ConfigDescriptor(_Part):
    """The config, by the digest of its canonical JSON."""

    name: Text
    file: Text
    digest: DigestSet


class ExternalParameters(_Part):
    """What the operator chose."""

    config: ConfigDescriptor
    target: Text
    labels: dict[Text, Text]
    set: dict[Text, pydantic.JsonValue]


class InternalParameters(_Part):
    """What imagegen made of it."""

    provider: Text
    image_id: Text
    plan_sha256: Text | None = None
    versions: dict[Text, Text]


class BuildDefinition(_Part):
    """The inputs of the build."""

    build_type: Literal["urn:imagegen:image:v1"] = "urn:imagegen:image:v1"
    external_parameters: ExternalParameters
    internal_parameters: InternalParameters
    resolved_dependencies: Annotated[list[Descriptor], pydantic.Field(max_length=5000)]


class Builder(_Part):
    """What ran the build."""

    id: Text = _BUILDER
    version: dict[Text, Text]


class Metadata(_Part):
    """The run."""

    invocation_id: Text | None = None
    started_on: Text | None = None
    finished_on: Text | None = None


class RunDetails(_Part):
    """The run, and what it made beside the image."""

    builder: Builder
    metadata: Metadata
    byproducts: Annotated[list[Descriptor], pydantic.Field(max_length=100)] = []


class Predicate(_Part):
    """The provenance of SLSA."""

    build_definition: BuildDefinition
    run_details: RunDetails


class Statement(_Part):
    """The statement of in-toto."""

    type: Literal["https://in-toto.io/Statement/v1"] = pydantic.Field("https://in-toto.io/Statement/v1", alias="_type")
    subject: Annotated[list[Descriptor], pydantic.Field(min_length=1, max_length=1000)]
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = "https://slsa.dev/provenance/v1"
    predicate: Predicate

    @pydantic.model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        build, run = self.predicate.build_definition, self.predicate.run_details
        for place, listed in (
            ("subject", self.subject),
            ("resolvedDependencies", build.resolved_dependencies),
            ("byproducts", run.byproducts),
        ):
            if len({item.name for item in listed}) != len(listed):
                raise ValueError(f"two entries of {place} have the same name")
        return self

    @property
    def sbom_sha256(self) -> str | None:
        """The digest of the SBOM that was made with this statement."""
        found = (item for item in self.predicate.run_details.byproducts if item.name == SBOM_NAME)
        return next(((item.digest or {}).get("sha256") for item in found), None)

    def as_json(self) -> dict[str, Any]:
        """The statement as JSON. A key without a value is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def make_statement(file: ManifestFile, sbom_sha256: str | None) -> Statement:
    """The statement about a manifest. Equal manifests have equal statements.

    A manifest with values that a statement cannot have is an InvalidDocument."""
    with stating(str(file.path), HINT):
        return Statement(
            subject=_subjects(file),
            predicate=Predicate(
                build_definition=_definition(file.manifest), run_details=_run(file.manifest, sbom_sha256)
            ),
        )


def statement_bytes(statement: Statement) -> bytes:
    """The statement as it is signed."""
    return json.dumps(statement.as_json(), indent=2, sort_keys=True).encode() + b"\n"


def _subjects(file: ManifestFile) -> list[Descriptor]:
    identity = file.manifest.image_id
    return [
        Descriptor(name=MANIFEST_NAME, digest={"sha256": file.sha256}, media_type="application/json"),
        *(
            Descriptor(name=f"{image.region}/{image.name}", digest={_CLOUD_ID: image.id, _IDENTITY: identity})
            for image in file.images
        ),
    ]


def _definition(manifest: ImageManifest) -> BuildDefinition:
    inputs = manifest.inputs
    changes = inputs.stated.get("set")
    return BuildDefinition(
        external_parameters=ExternalParameters(
            config=ConfigDescriptor(
                name=manifest.name, file=inputs.config_file, digest={"sha256": inputs.config_sha256}
            ),
            target=manifest.target,
            labels=manifest.labels,
            set=changes if isinstance(changes, dict) else {},
        ),
        internal_parameters=InternalParameters(
            provider=manifest.provider,
            image_id=manifest.image_id,
            plan_sha256=_plan_sha256(manifest.report),
            versions=manifest.versions,
        ),
        resolved_dependencies=_dependencies(manifest),
    )


def _plan_sha256(report: Json | None) -> str | None:
    return None if report is None else str(report.get("plan_sha256"))


def _dependencies(manifest: ImageManifest) -> list[Descriptor]:
    inputs = manifest.inputs
    lock = [Descriptor(name="lock", digest={"sha256": inputs.lock_sha256})] if inputs.lock_sha256 else []
    base = Descriptor(name="base-image", uri=str(base_purl(manifest.provider, inputs.base)))
    artifacts = [
        Descriptor(name=f"artifact/{name}", uri=artifact.url, digest={"sha256": artifact.sha256})
        for name, artifact in sorted(inputs.artifacts.items())
    ]
    images = [
        Descriptor(
            name=f"image/{name}", uri=str(image_purl(name, digest)), digest={"sha256": digest.removeprefix("sha256:")}
        )
        for name, digest in sorted(inputs.images.items())
    ]
    return [*lock, base, *artifacts, *images]


def _run(manifest: ImageManifest, sbom_sha256: str | None) -> RunDetails:
    tools = manifest.tools
    versions = {"packer": tools.packer, f"packer-plugin-{tools.plugin.name}": tools.plugin.version} if tools else {}
    sbom = Descriptor(name=SBOM_NAME, digest={"sha256": sbom_sha256 or ""}, media_type="application/vnd.cyclonedx+json")
    return RunDetails(
        builder=Builder(version={"imagegen": manifest.imagegen_version, **versions}),
        metadata=Metadata(
            invocation_id=manifest.run_id or None,
            # A run that only found the image does not know when it was built.
            started_on=manifest.created if tools else None,
            finished_on=manifest.finished,
        ),
        byproducts=[sbom] if sbom_sha256 else [],
    )
