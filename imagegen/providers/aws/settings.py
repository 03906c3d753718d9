"""What a config says about AWS."""

from __future__ import annotations

from typing import Annotated

import pydantic

from imagegen.resources.model import Strict

Region = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")]
Cidr = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$")]


class Publish(Strict):
    """Where finished images go."""

    regions: Annotated[
        list[Region], pydantic.Field(description="Regions that get a copy, beside the build region.")
    ] = []


class Settings(Strict):
    """Build and publishing on AWS."""

    region: Annotated[Region, pydantic.Field(description="The region in which the image is built.")]
    instance_type: Annotated[
        str, pydantic.Field(description="The builder's instance type.", pattern=r"^[a-z0-9-]+\.[a-z0-9]+$")
    ] = "m6i.large"
    disk_size_gb: Annotated[int, pydantic.Field(description="Size of the image's disk.", ge=30, le=2048)] = 50
    allowed_cidrs: Annotated[
        list[Cidr],
        pydantic.Field(
            description="Networks from which the builder's WinRM port is reached during the build.", min_length=1
        ),
    ]
    publish: Annotated[Publish, pydantic.Field(description="Where finished images go.", default_factory=Publish)]
