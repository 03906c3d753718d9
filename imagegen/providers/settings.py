"""What the settings of all clouds share: what the plan needs of them, and typed values."""

import abc
from typing import Annotated

import pydantic

from imagegen.resources.model import Strict

Cidr = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$")]
Days = Annotated[int, pydantic.Field(ge=1, le=3650)]
# What every cloud takes.
TagValue = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9 ._:/=+@-]*$", max_length=255)]
# Above nothing: a plugin takes 0 for no limit.
Price = Annotated[
    str, pydantic.StringConstraints(pattern=r"^([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)$", max_length=12)
]
EnvName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]{0,127}$")]


class TargetSettings(Strict, abc.ABC):
    """What a config says of one target: each cloud's own model, of which everybody else needs only this.

    Each narrows `provider` to its own name.
    """

    provider: str

    @abc.abstractmethod
    def build_json(self) -> dict[str, object]:
        """What decides how the image is made, as `imagegen plan` shows it."""

    @abc.abstractmethod
    def publish_json(self) -> dict[str, object]:
        """What decides where it goes, as `imagegen plan` shows it."""
