"""The targets of a config, where an image is built and published. The registry of providers defines the clouds.

A target that is named after a cloud is on that cloud. Any other target has the key `provider`, so that two accounts of
one cloud can be two targets of one config.
"""

import functools
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import pydantic

from imagegen.base.errors import InvalidValue
from imagegen.providers.registry import PROVIDERS, part
from imagegen.providers.settings import TargetSettings
from imagegen.steps.resource import Strict

# The name becomes part of the names of folders and files, and a key of the lock.
NAME: Final = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
LONGEST_NAME: Final = 40
_SETTINGS: Final[dict[str, type[TargetSettings]]] = {name: part(name, "settings").Settings for name in PROVIDERS}


def _check_name(name: str) -> str:
    if re.fullmatch(NAME, name) is None or len(name) > LONGEST_NAME:
        raise InvalidValue(
            f"{name[:LONGEST_NAME]!r} is not a valid name of a target",
            f"write at most {LONGEST_NAME} lower-case letters, digits and single dashes, as prod-2",
        )
    return name


TargetName = Annotated[str, pydantic.AfterValidator(_check_name)]


def _check_provider(name: str) -> Callable[[Any], Any]:
    """Check that a target that is named after a cloud is on that cloud."""

    def check(value: Any) -> Any:  # noqa: ANN401 - any value of a config
        if isinstance(value, dict) and value.get("provider", name) != name:
            raise InvalidValue(
                f"a target named {name} is on {name}, not on {value['provider']}",
                f"give the target a name of its own, as {name}-2, or write provider: {name}",
            )
        return value

    return check


if TYPE_CHECKING:
    AnySettings = TargetSettings
else:
    AnySettings = Annotated[
        functools.reduce(operator.or_, _SETTINGS.values()), pydantic.Field(discriminator="provider")
    ]


class NamedTargets(Strict):
    """Targets by name. A target that is not named after its cloud has the key `provider`."""

    model_config = pydantic.ConfigDict(extra="allow")
    __pydantic_extra__: dict[TargetName, AnySettings]

    @pydantic.model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if not self.named():
            raise ValueError(f"name at least one target: {' or '.join(PROVIDERS)}")
        return self

    def named(self) -> dict[str, TargetSettings]:
        """The settings of each target."""
        return {name: settings for name, settings in self if settings is not None}


if TYPE_CHECKING:
    Targets = NamedTargets
else:
    Targets = pydantic.create_model(
        "Targets",
        __base__=NamedTargets,
        __module__=__name__,
        __doc__=NamedTargets.__doc__,
        **{
            name: (
                Annotated[settings, pydantic.BeforeValidator(_check_provider(name))] | None,
                pydantic.Field(default=None, description=settings.__doc__),
            )
            for name, settings in _SETTINGS.items()
        },
    )
