"""The place where builds on AWS create resources, as a journal records it."""

from typing import Annotated

import pydantic

from imagegen.providers.aws.settings import Auth
from imagegen.resources.model import Strict

_Region = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9-]{1,32}$")]


class Place(Strict):
    """The build region of an account, the regions of its copies, and the sign-in."""

    region: _Region
    # Empty in journals of earlier versions, and for builds without copies.
    copy_regions: list[_Region] = []
    auth: Auth
    # Empty in journals of earlier versions.
    account: Annotated[str, pydantic.Field(pattern=r"^[0-9]{12}$")] = ""
