"""Where builds on AWS leave things, as a journal tells it later."""

from __future__ import annotations

from typing import Annotated

import pydantic

from imagegen.providers.aws.settings import Auth
from imagegen.resources.model import Strict

_Region = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9-]{1,32}$")]


class Place(Strict):
    """The region of an account that builds, those that its images are copied to, and who may look there."""

    region: _Region
    # Journals of earlier versions name none, as builds that copy nowhere.
    copy_regions: list[_Region] = []
    auth: Auth
    # Journals of earlier versions name none.
    account: Annotated[str, pydantic.Field(pattern=r"^[0-9]{12}$")] = ""
