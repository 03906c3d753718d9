"""What a config says about Azure."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.resources.model import Strict

Location = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9]+$")]


class Gallery(Strict):
    """The Compute Gallery that holds the images; it and the definition must exist."""

    resource_group: Annotated[
        str, pydantic.Field(description="Resource group of the gallery.", pattern=r"^[A-Za-z0-9._()-]{1,90}$")
    ]
    name: Annotated[
        str,
        pydantic.Field(
            description="The gallery: letters, digits, dots, underscores.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._]{0,79}$"
        ),
    ]
    definition: Annotated[
        str,
        pydantic.Field(description="The image definition.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,78}[A-Za-z0-9_]$"),
    ]
    version: Annotated[
        Literal["date", "kubernetes"],
        pydantic.Field(
            description="How versions are numbered: `date` is YEAR.MONTHDAY.SEQUENCE, `kubernetes` its own version."
        ),
    ] = "date"


class Publish(Strict):
    """Where finished images go."""

    regions: Annotated[
        list[Location], pydantic.Field(description="Regions that get a replica, beside the build region.")
    ] = []


class Settings(Strict):
    """Build and publishing on Azure."""

    location: Annotated[Location, pydantic.Field(description="The region in which the image is built.")]
    vm_size: Annotated[str, pydantic.Field(description="The builder's size.", pattern=r"^[A-Za-z0-9_]+$")] = (
        "Standard_D4s_v5"
    )
    gallery: Annotated[Gallery, pydantic.Field(description="The Compute Gallery that holds the images.")]
    publish: Annotated[Publish, pydantic.Field(description="Where finished images go.", default_factory=Publish)]
