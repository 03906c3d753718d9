"""Where builds on Azure leave things, as a journal tells it later."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.resources.model import Strict

# They become parts of a path.
_Name = Annotated[str, pydantic.Field(pattern=r"^[\w().-]{1,90}$")]


class _Auth(Strict):
    method: Literal["environment", "cli"]
    subscription_id: _Name
    client_secret_env: _Name | None


class Place(Strict):
    """One subscription, the group to build in, where there is one, and the gallery."""

    auth: _Auth
    location: _Name
    build_resource_group: _Name | None
    resource_group: _Name
    gallery: _Name
    definition: _Name
    key_vault: _Name | None = None
    """Journals of earlier versions name none."""
