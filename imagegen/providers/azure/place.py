"""The place where builds on Azure create resources, as a journal records it."""

from typing import Annotated

import pydantic

from imagegen.providers.azure.settings import Auth
from imagegen.resources.model import Strict

# Names become parts of a URL path.
_Name = Annotated[str, pydantic.Field(pattern=r"^[\w().-]{1,128}$")]


class PlaceAuth(Auth):
    """The sign-in, with its subscription."""

    subscription_id: _Name


class Place(Strict):
    """A subscription, the resource group of builds, if any, and the gallery."""

    auth: PlaceAuth
    location: _Name
    build_resource_group: _Name | None
    resource_group: _Name
    gallery: _Name
    definition: _Name
    key_vault: _Name | None = None
    """None in journals of earlier versions."""
