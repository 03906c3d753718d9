"""The base class and the value types of the settings of all clouds."""

import abc
from typing import Annotated

import pydantic

from imagegen.steps.resource import Strict

Cidr = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$")]
Days = Annotated[int, pydantic.Field(ge=1, le=3650)]
# Valid in every cloud.
TagValue = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9 ._:/=+@-]*$", max_length=255)]
# More than 0, because a plugin reads 0 as no limit.
Price = Annotated[
    str, pydantic.StringConstraints(pattern=r"^([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)$", max_length=12)
]
EnvName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]{0,127}$")]


class TargetSettings(Strict, abc.ABC):
    """The settings of one target. Each cloud has its own model; other modules use only these members.

    Each model narrows `provider` to its own name.
    """

    provider: str

    @property
    def restricted_address_users(self) -> list[str]:
        """The accounts of a node that may use the address that the cloud's images restrict, if there is one."""
        return []

    @abc.abstractmethod
    def build_json(self) -> dict[str, object]:
        """The settings that decide how the image is built, for `imagegen plan`."""

    @abc.abstractmethod
    def publish_json(self) -> dict[str, object]:
        """The settings that decide where the image is published, for `imagegen plan`."""
