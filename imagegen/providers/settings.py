"""The base class and the value types of the settings of all clouds."""

import abc
import ipaddress
import re
from typing import Annotated

import pydantic

from imagegen.base.errors import InvalidValue
from imagegen.catalog.facts import table
from imagegen.steps.resource import Fault, Strict


def _check_network(cidr: str) -> str:
    """Check that a text is a network. An address with host bits is usually a typing error."""
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        raise InvalidValue(
            f"{cidr} is not a network: an address has four numbers up to 255, and a prefix length is at most 32",
            "write it as 198.51.100.0/24",
        ) from None
    if str(network) != cidr:
        raise InvalidValue(
            f"{cidr} is not a network: it is an address within {network}",
            f"write {network}, or {cidr.partition('/')[0]}/32 for one machine",
        )
    return cidr


def _check_variable(name: str, info: pydantic.ValidationInfo) -> str:
    """Check that a variable can hold only a secret, or a user name."""
    for row in table("variables")["names"]:
        if re.fullmatch("|".join(row["patterns"]), name):
            example = f"IMAGES_{str(info.field_name).removesuffix('_env').upper()}"
            raise InvalidValue(
                f"{name} does not hold credentials of your own: {row['means']}",
                f"write the name of a variable that holds only this value, for example {example}",
            )
    return name


def one_variable(username_env: str | None, password_env: str | None) -> Fault:
    """The fault of credentials whose user name and password are in the same variable."""
    return Fault(
        username_env and username_env == password_env,
        ("password_env",),
        f"{password_env} cannot hold both the user name and the password",
        "write the names of two variables",
    )


def unacknowledged(is_acknowledged: bool) -> Fault:
    """The fault of a section that shares a Windows image without a look at its licence."""
    return Fault(
        not is_acknowledged,
        (),
        "the Windows licence restricts sharing an image, and you are responsible for complying with it",
        "read its terms and write licence_acknowledged: true, or leave sharing out",
    )


Cidr = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$"),
    pydantic.AfterValidator(_check_network),
]
Days = Annotated[int, pydantic.Field(ge=1, le=3650)]
# Valid in every cloud.
TagValue = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9 ._:/=+@-]*$", max_length=255)]
# More than 0, because a plugin reads 0 as no limit.
Price = Annotated[
    str, pydantic.StringConstraints(pattern=r"^([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)$", max_length=12)
]
EnvName = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]{0,127}$"), pydantic.AfterValidator(_check_variable)
]


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
