"""ImageManifest: what was made of which inputs with which tools, where it is, and what the machine itself reported.

Written by a build, re-read by later runs. Holds no secret: a URL with a query or a user in it is refused.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Annotated, Literal, Self

import pydantic

from imagegen.artifacts.lock import LockedBase
from imagegen.manifest.report import Json
from imagegen.resources.model import Name, Sha256, Strict

if TYPE_CHECKING:
    from imagegen.providers import CloudImage, Published


def _without_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("a recorded URL has no query, no fragment and no user")
    return url


RecordedUrl = Annotated[str, pydantic.AfterValidator(_without_secrets)]


class RecordedArtifact(Strict):
    """Bytes the image was made of."""

    url: RecordedUrl
    sha256: Sha256
    size: int


class Inputs(Strict):
    """What went in. `config_sha256` is of the canonical config: a comment does not change it.

    `stated` is what the config says of its policy and of the cluster: ended support that was allowed, values of --set.
    """

    config_file: str
    config_sha256: Sha256
    base: LockedBase
    artifacts: dict[str, RecordedArtifact]
    stated: Json = {}


class Plugin(Strict):
    """A Packer plugin that took part."""

    name: str
    version: str


class Tools(Strict):
    """What made it."""

    packer: str
    plugin: Plugin


class RecordedImage(Strict):
    """An image as its cloud has it."""

    id: str
    region: str
    name: str
    state: str = "available"

    @classmethod
    def of(cls, image: CloudImage) -> Self:
        return cls(id=image.id, region=image.region, name=image.name, state=image.state)


class RecordedPublish(Strict):
    """Where the image can be used from; one image per region."""

    version: str
    images: list[RecordedImage]

    @classmethod
    def of(cls, published: Published) -> Self:
        return cls(version=published.version, images=[RecordedImage.of(image) for image in published.images])


class ImageManifest(Strict):
    """The record of one image on one target."""

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
    """None where the run that recorded it found the image made already."""
    built: RecordedImage | None = None
    published: RecordedPublish | None = None
    report: Json | None = None
    report_missing: str | None = None
    """Why there is no report; None exactly when there is one."""
    notes: Json = {}

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, data: dict[str, object]) -> dict[str, object]:
        # A target was its cloud, and had the cloud's name.
        return data if "provider" in data else {**data, "provider": data.get("target")}

    @pydantic.model_validator(mode="after")
    def _has_report_or_reason(self) -> Self:
        if (self.report is None) != bool(self.report_missing):
            raise ValueError("a manifest has either the machine's report or the reason why it is missing")
        return self
