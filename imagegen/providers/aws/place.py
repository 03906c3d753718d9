"""Where builds on AWS leave things, as a journal tells it later."""

from __future__ import annotations

from typing import Annotated

import pydantic

from imagegen.providers.aws.settings import Auth
from imagegen.resources.model import Strict


class Place(Strict):
    """One region of an account, and who may look there."""

    region: Annotated[str, pydantic.Field(pattern=r"^[a-z0-9-]{1,32}$")]
    auth: Auth
    # Journals of earlier versions name none.
    account: Annotated[str, pydantic.Field(pattern=r"^[0-9]{12}$")] = ""
