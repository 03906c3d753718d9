"""What a config says about a machine's first boot and about reaching it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic

from imagegen.config.words import Version
from imagegen.providers.registry import PROVIDERS, part
from imagegen.resources.model import Strict

# As cloudbase-init names its plugins and services: a Python class by its whole name.
ClassName = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+\.[A-Z][A-Za-z0-9]*$")
]


class Plugins(Strict):
    """cloudbase-init's plugins on each cloud, in the order in which they run."""


class Services(Strict):
    """cloudbase-init's metadata services on each cloud; the first that answers is asked."""


def _by_cloud(section: type[Strict], example: str) -> type[Strict]:
    """The section with a list of classes for each cloud."""
    fields: Any = {
        name: (
            list[ClassName] | None,
            pydantic.Field(
                default=None,
                description=f"On {part(name, 'settings').TITLE}; the catalogue's when left out.",
                min_length=1,
                examples=[[example]],
            ),
        )
        for name in PROVIDERS
    }
    return pydantic.create_model(
        section.__name__, __base__=section, __module__=__name__, __doc__=section.__doc__, **fields
    )


if not TYPE_CHECKING:
    Plugins = _by_cloud(Plugins, "cloudbaseinit.plugins.common.userdata.UserDataPlugin")
    Services = _by_cloud(Services, "cloudbaseinit.metadata.services.configdrive.ConfigDriveService")


class Logging(Strict):
    """What cloudbase-init tells of its work."""

    file: str = pydantic.Field(
        default="cloudbase-init.log",
        description="The log's name in cloudbase-init's log folder.",
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?$",
        examples=["first-boot.log"],
    )
    debug: bool = pydantic.Field(
        default=False, description="Tell everything, user data with its bootstrap token included.", examples=[True]
    )
    serial_port: str | None = pydantic.Field(
        default=None,
        description="Also tell it to a serial port, which whoever may read the cloud's console reads.",
        pattern=r"^COM[1-9],[0-9]+,[NEO],[78]$",
        examples=["COM1,115200,N,8"],
    )


class CloudbaseInit(Strict):
    """What makes a node of the machine at its first boot."""

    version: Version = pydantic.Field(
        default="1.1.8", description='The cloudbase-init version, quoted: "1.1.8".', examples=["1.1.7"]
    )
    user: str = pydantic.Field(
        default="capi",
        description="The administrator that cloudbase-init creates.",
        pattern=r"^[a-z][a-z0-9_-]{0,19}$",
        examples=["operator"],
    )
    groups: list[Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9 -]{0,63}$")]] = pydantic.Field(
        default=["Administrators"], description="The groups of that user.", min_length=1, examples=[["Users"]]
    )
    plugins: Plugins = pydantic.Field(
        description="What it does, and in which order.", default_factory=Plugins.model_construct
    )
    metadata_services: Services = pydantic.Field(
        description="Where it asks for metadata and user data.", default_factory=Services.model_construct
    )
    logging: Logging = pydantic.Field(description="What it tells.", default_factory=Logging.model_construct)
    real_time_clock_utc: bool = pydantic.Field(
        default=False, description="The machine's clock runs in UTC; NTPClientPlugin sets it so.", examples=[True]
    )


class Ssh(Strict):
    """An OpenSSH server that takes keys only; each machine makes its own host keys."""

    source: Literal["capability", "zip"] = pydantic.Field(
        default="capability", description="Windows' own capability, or Win32-OpenSSH's archive.", examples=["zip"]
    )
    version: str | None = pydantic.Field(
        default=None,
        description="The archive's version; the catalogue's when left out.",
        pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(p[0-9]+)?$",
        examples=["9.8.3.0"],
    )
    port: int = pydantic.Field(default=22, description="The port it listens on.", ge=1, le=65535, examples=[2222])
    shell: Literal["powershell", "cmd"] = pydantic.Field(
        default="powershell", description="The shell of a session.", examples=["cmd"]
    )
