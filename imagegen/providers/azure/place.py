"""Where builds on Azure leave things, as a journal tells it later."""

from __future__ import annotations

from typing import Annotated

import pydantic

from imagegen.providers.azure.settings import Auth
from imagegen.resources.model import Strict

# They become parts of a path.
_Name = Annotated[str, pydantic.Field(pattern=r"^[\w().-]{1,128}$")]


class PlaceAuth(Auth):
    """The sign-in, whose subscription is known."""

    subscription_id: _Name


class Place(Strict):
    """One subscription, the group to build in, where there is one, and the gallery."""

    auth: PlaceAuth
    location: _Name
    build_resource_group: _Name | None
    resource_group: _Name
    gallery: _Name
    definition: _Name
    key_vault: _Name | None = None
    """Journals of earlier versions name none."""
