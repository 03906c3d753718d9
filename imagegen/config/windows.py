"""What a config says about Windows itself."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.config.words import ImageRef, Kb, Line
from imagegen.resources.model import Strict


class Updates(Strict):
    """Windows updates that the image gets while it is built."""

    categories: Annotated[
        list[Literal["critical", "security", "rollups", "definitions", "feature-packs"]],
        pydantic.Field(description="Every update of these categories.", examples=[["critical", "security"]]),
    ] = []
    kbs: Annotated[
        list[Kb], pydantic.Field(description="These updates, whatever their category.", examples=[["KB5066782"]])
    ] = []
    exclude: Annotated[
        list[Kb], pydantic.Field(description="Updates that are never installed.", examples=[["KB5034439"]])
    ] = []

    @pydantic.model_validator(mode="after")
    def _something(self) -> Updates:
        if not self.categories and not self.kbs:
            raise ValueError("name categories or kbs: updates without either install nothing")
        return self


class Windows(Strict):
    """The Windows release that the image is."""

    release: Annotated[
        str,
        pydantic.Field(
            description="The Windows Server release as the catalogue knows it: 2019, 2022, 2025 or annual.",
            pattern=r"^[a-z0-9]{1,20}$",
            examples=["2022", "2025", "2019", "annual"],
        ),
    ]
    edition: Annotated[
        Literal["core", "full"],
        pydantic.Field(description="`core` has no desktop; `full` has one.", examples=["full"]),
    ] = "core"
    time_zone: Annotated[
        Line | None,
        pydantic.Field(
            description="The time zone by Windows' own name; the base image's, which is UTC, when left out.",
            examples=["W. Europe Standard Time"],
        ),
    ] = None
    updates: Annotated[
        Updates | None, pydantic.Field(description="Updates beyond what the base image has; none when left out.")
    ] = None
    hyper_v: Annotated[
        Literal["none", "tools", "isolation"],
        pydantic.Field(
            description="`tools`: the management commands; `isolation`: the hypervisor too, for Hyper-V isolated pods.",
            examples=["isolation"],
        ),
    ] = "none"
    container_images: Annotated[
        list[ImageRef],
        pydantic.Field(
            description="Container base images to have on the image; each must fit the release.",
            examples=[["mcr.microsoft.com/windows/servercore:ltsc2022"]],
        ),
    ] = []
