"""What a config says about Windows itself."""

from typing import Literal, Self

import pydantic

from imagegen.config.addresses import ImageRef
from imagegen.config.words import Kb, Line
from imagegen.resources.model import Strict


class Updates(Strict):
    """Windows updates that the image gets while it is built."""

    categories: list[Literal["critical", "security", "rollups", "definitions", "feature-packs"]] = pydantic.Field(
        default=[], description="Every update of these categories.", examples=[["critical", "security"]]
    )
    kbs: list[Kb] = pydantic.Field(
        default=[], description="These updates, whatever their category.", examples=[["KB5066782"]]
    )
    exclude: list[Kb] = pydantic.Field(
        default=[], description="Updates that are never installed.", examples=[["KB5034439"]]
    )

    @pydantic.model_validator(mode="after")
    def _something(self) -> Self:
        if not self.categories and not self.kbs:
            raise ValueError("name categories or kbs: updates without either install nothing")
        return self


class Windows(Strict):
    """The Windows release that the image is."""

    release: str = pydantic.Field(
        description="The Windows Server release as the catalogue knows it: 2019, 2022, 2025 or annual.",
        pattern=r"^[a-z0-9]{1,20}$",
        examples=["2022", "2025", "2019", "annual"],
    )
    edition: Literal["core", "full"] = pydantic.Field(
        default="core", description="`core` has no desktop; `full` has one.", examples=["full"]
    )
    time_zone: Line | None = pydantic.Field(
        default=None,
        description="The time zone by Windows' own name; the base image's, which is UTC, when left out.",
        examples=["W. Europe Standard Time"],
    )
    updates: Updates | None = pydantic.Field(
        default=None, description="Updates beyond what the base image has; none when left out."
    )
    hyper_v: Literal["none", "tools", "isolation"] = pydantic.Field(
        default="none",
        description="`tools`: the management commands; `isolation`: the hypervisor too, for Hyper-V isolated pods.",
        examples=["isolation"],
    )
    container_images: list[ImageRef] = pydantic.Field(
        default=[],
        description="Container base images to have on the image; each must fit the release.",
        examples=[["mcr.microsoft.com/windows/servercore:ltsc2022"]],
    )
