"""ImageManifest: how an image was made, from which inputs, where it is, and what its machine reported.

A build writes it, and later runs merge their results into it. It holds no secrets: a URL with a query or credentials
is rejected.
"""

import urllib.parse
from typing import Annotated, Literal, Self

import pydantic

from imagegen.base.errors import ConflictError
from imagegen.fetch.lock import LockedBase
from imagegen.providers import CloudImage, Published
from imagegen.steps.resource import ImageDigest, Name, Sha256, Strict

Json = dict[str, pydantic.JsonValue]


def _without_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("a URL in a manifest must not have a query, a fragment or a user")
    return url


ReleaseVersion = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z._+-]{0,127}$")]
RecordedUrl = Annotated[str, pydantic.AfterValidator(_without_secrets)]


class RecordedSignature(Strict):
    """Who signed a file, by the sha256 of the certificate, and the time that a timestamp confirms."""

    signer: str
    thumbprint: Sha256
    timestamp: str | None = None


class RecordedFile(Strict):
    """A file on the disk of the image. Its size is that which the machine reported."""

    sha256: Sha256
    size: int | None = None


class RecordedArtifact(Strict):
    """An artifact that the image was made of."""

    url: RecordedUrl
    sha256: Sha256
    size: int
    product: Name | None = None
    """The product of the catalogue, and its version. None for others, or if an older imagegen recorded it."""
    version: ReleaseVersion | None = None
    release: RecordedUrl | None = None
    """The public URL of the release that it is. None if that is `url`, or if an older imagegen recorded it."""
    signed: dict[str, RecordedSignature] = {}
    """The signatures by the file of the archive that has one; empty for the artifact itself."""
    files: dict[str, RecordedFile] = {}
    """The files that the image has of it, by their paths there. Those of a package are not known, and an older imagegen
    recorded none."""


class Inputs(Strict):
    """The inputs of an image. `config_sha256` is the digest of the canonical config, so comments do not change it.

    `stated` holds settings for the policy and the cluster, such as allow_eol, and the values of --set.
    """

    config_file: str
    config_sha256: Sha256
    base: LockedBase
    artifacts: dict[str, RecordedArtifact]
    images: dict[str, ImageDigest] = {}
    """The digests of the container images, by their names."""
    stated: Json = {}
    first_boot: list[str] | None = None
    """The ids of the resources that a node may change after its first boot. None if an older imagegen recorded it."""
    lock_sha256: Sha256 | None = None
    """Of the bytes of the lock. None if an older imagegen recorded the image."""


class Plugin(Strict):
    """The Packer plugin that was used."""

    name: str
    version: str


class Tools(Strict):
    """The tools that made the image."""

    packer: str
    plugin: Plugin


class RecordedImage(Strict):
    """An image in its cloud."""

    id: str
    region: str
    name: str
    state: str = "available"

    @classmethod
    def of(cls, image: CloudImage) -> Self:
        return cls(id=image.id, region=image.region, name=image.name, state=image.state)


class RecordedPublish(Strict):
    """Where the image is published: one image per region."""

    version: str
    images: list[RecordedImage]

    @classmethod
    def of(cls, published: Published) -> Self:
        return cls(version=published.version, images=[RecordedImage.of(image) for image in published.images])


class ImageManifest(Strict):
    """The manifest of one image on one target."""

    manifest_version: Literal[1] = 1
    name: Name
    image_id: Sha256
    target: Name
    provider: Name
    labels: dict[str, str]
    created: str
    imagegen_version: str
    inputs: Inputs
    versions: dict[str, str]
    tools: Tools | None = None
    """None if the run that wrote the manifest did not build the image but found it."""
    run_id: str | None = None
    """Of the run that built the image, as in its tags. None as for `tools`, or if an older imagegen recorded it."""
    finished: str | None = None
    """When the image was built, RFC 3339 in UTC. None as for `run_id`."""
    built: RecordedImage | None = None
    published: RecordedPublish | None = None
    report: Json | None = None
    report_missing: str | None = None
    """Why there is no report; None if there is one."""
    notes: Json = {}

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, data: object) -> object:
        # A target was its cloud, and had the cloud's name.
        if isinstance(data, dict) and "provider" not in data:
            return {**data, "provider": data.get("target")}
        return data

    @pydantic.model_validator(mode="after")
    def _has_report_or_reason(self) -> Self:
        if (self.report is None) != bool(self.report_missing):
            raise ValueError("a manifest must have either the machine's report or the reason why it is missing")
        return self

    def is_of(self, id_: str) -> bool:
        """Whether it is the manifest of the image with this id in its cloud."""
        # A cloud may write an id in capitals another time.
        return self.built is not None and self.built.id.lower() == id_.lower()


def merge(old: ImageManifest, new: ImageManifest) -> ImageManifest:
    """The old manifest with what a later run for the same image adds.

    Of two images with one identity, the later one replaces the earlier one, with its report and its regions. But a
    record with a report is not replaced by one without.
    """
    _reject_conflict(old, new)
    if old.built is not None and new.built is not None and not old.is_of(new.built.id):
        return old if old.report is not None and new.report is None else new
    making = new if old.built is None and new.built is not None else old
    report = new.report if new.report is not None else old.report
    return ImageManifest(
        name=old.name,
        image_id=old.image_id,
        target=old.target,
        provider=old.provider,
        labels=old.labels,
        created=making.created,
        imagegen_version=making.imagegen_version,
        inputs=making.inputs,
        versions=making.versions,
        tools=making.tools,
        run_id=making.run_id,
        finished=making.finished,
        built=new.built or old.built,
        published=_published(old.published, new.published),
        report=report,
        report_missing=None if report is not None else new.report_missing,
        notes={**old.notes, **new.notes},
    )


def _reject_conflict(old: ImageManifest, new: ImageManifest) -> None:
    """Raise an error unless both manifests have the same identity, inputs and labels."""
    place = f"{new.name} on {new.target}"
    for what, known, given in (("image id", old.image_id, new.image_id), ("labels", old.labels, new.labels)):
        if known != given:
            raise ConflictError(
                f"the manifest of {place} has {what} {known}, but this image has {given}",
                hint="keep the manifest, since its image may be in use; give this image another name or another --out",
            )
    was, now = ({name: file.sha256 for name, file in side.inputs.artifacts.items()} for side in (old, new))
    if was != now:
        names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
        raise ConflictError(
            f"the manifest of {place} says that {new.image_id[:16]} was made of other artifacts",
            hint="an image id stands for one set of artifacts: find out which of the two locks is right",
            details=[
                f"{name}: recorded {was.get(name, 'not used')}, now {now.get(name, 'not used')}" for name in names
            ],
        )


def _published(old: RecordedPublish | None, new: RecordedPublish | None) -> RecordedPublish | None:
    if old is None or new is None:
        return new or old
    # A later run adds regions and never removes the image of an earlier run.
    images = {image.region: image for image in (*old.images, *new.images)}
    return RecordedPublish(version=new.version, images=list(images.values()))
