"""ImageConfig: what an operator asks for. Closed, typed and frozen; the one truth for defaults and descriptions."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure.settings import Settings as AzureSettings
from imagegen.resources.model import Sha256, Strict

Version = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?$")]
HttpsUrl = Annotated[
    str, pydantic.StringConstraints(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]+)?/[!-~]*$", max_length=2000)
]


class Windows(Strict):
    """The Windows release that the image is."""

    release: Annotated[Literal["2019", "2022", "2025"], pydantic.Field(description="The Windows Server release.")]
    edition: Annotated[
        Literal["core", "full"], pydantic.Field(description="`core` has no desktop; `full` has one.")
    ] = "core"


class Kubernetes(Strict):
    """The node components."""

    version: Annotated[Version, pydantic.Field(description='The Kubernetes version, quoted: "1.36.2".')]


class Containerd(Strict):
    """containerd as container runtime."""

    version: Annotated[Version, pydantic.Field(description='The containerd version, quoted: "2.3.4".')]


class Runtime(Strict):
    """The container runtime."""

    containerd: Annotated[Containerd, pydantic.Field(description="containerd, the only runtime so far.")]


class CloudbaseInit(Strict):
    """What makes a node of the machine at its first boot."""

    version: Annotated[Version, pydantic.Field(description='The cloudbase-init version, quoted: "1.1.8".')] = "1.1.8"
    user: Annotated[
        str,
        pydantic.Field(
            description="The administrator that cloudbase-init creates.", pattern=r"^[a-z][a-z0-9_-]{0,19}$"
        ),
    ] = "capi"


class PinnedUrl(Strict):
    """Where an artifact comes from instead, and what its bytes must be."""

    url: Annotated[HttpsUrl, pydantic.Field(description="https URL; for a base URL the folder that holds the files.")]
    sha256: Annotated[Sha256 | None, pydantic.Field(description="What the bytes must be, in lower-case hex.")] = None


def _form_of_override(asked: object) -> str:
    return "(url)" if isinstance(asked, str) else "(pinned)"


# Told apart by form, so that complaints are about the form that was meant.
AskedOverride = Annotated[
    Annotated[HttpsUrl, pydantic.Tag("(url)")] | Annotated[PinnedUrl, pydantic.Tag("(pinned)")],
    pydantic.Discriminator(_form_of_override),
]


class Targets(Strict):
    """The clouds that the image is built for."""

    aws: Annotated[AwsSettings | None, pydantic.Field(description="Build and publish on AWS.")] = None
    azure: Annotated[AzureSettings | None, pydantic.Field(description="Build and publish on Azure.")] = None

    @pydantic.model_validator(mode="after")
    def _at_least_one(self) -> Targets:
        if self.aws is None and self.azure is None:
            raise ValueError("name at least one target: aws or azure")
        return self

    def named(self) -> dict[str, AwsSettings | AzureSettings]:
        """The targets that are asked for, by name."""
        both = {"aws": self.aws, "azure": self.azure}
        return {name: settings for name, settings in both.items() if settings is not None}


class ImageConfig(Strict):
    """One image."""

    name: Annotated[
        str,
        pydantic.Field(
            description="The image's name: lower-case words with dashes.", pattern=r"^[a-z][a-z0-9-]{2,62}$"
        ),
    ]
    windows: Annotated[Windows, pydantic.Field(description="The Windows release.")]
    kubernetes: Annotated[Kubernetes, pydantic.Field(description="The node components.")]
    runtime: Annotated[Runtime, pydantic.Field(description="The container runtime.")]
    cloudbase_init: Annotated[CloudbaseInit, pydantic.Field(description="First boot.", default_factory=CloudbaseInit)]
    overrides: Annotated[
        dict[str, AskedOverride],
        pydantic.Field(
            description="Signed or mirrored artifacts instead of the public ones: `containerd_url: https://…`."
        ),
    ] = {}
    targets: Annotated[Targets, pydantic.Field(description="Where the image is built and published.")]
