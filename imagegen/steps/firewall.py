"""The kind `firewall`."""

from typing import Annotated, Literal

import pydantic

from imagegen.steps.resource import Name, Resource
from imagegen.steps.update import Text


def _check_ports(text: str) -> str:
    first, last = (int(port) for port in text.split("-"))
    if not 1 <= first < last <= 65535:
        raise ValueError("must be two ports from 1 to 65535, the smaller one first")
    return text


# A discriminated union, so that an error message is about the form that was used.
Ports = Annotated[
    Annotated[int, pydantic.Field(ge=1, le=65535), pydantic.Tag("(port)")]
    | Annotated[
        str,
        pydantic.StringConstraints(pattern=r"^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$"),
        pydantic.AfterValidator(_check_ports),
        pydantic.Tag("(range)"),
    ],
    pydantic.Discriminator(lambda given: "(range)" if isinstance(given, str) else "(port)"),
]


class Firewall(Resource):
    """A firewall rule for one port, or for several in a row (30000-32767), in every profile."""

    name: Name
    display_name: Text
    direction: Literal["in", "out"]
    action: Literal["allow", "block"]
    protocol: Literal["TCP", "UDP"]
    port: Ports
