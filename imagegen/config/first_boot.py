"""The sections of a config for a machine's first boot and for SSH."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import pydantic

from imagegen.base.errors import InvalidValue
from imagegen.catalog.facts import table
from imagegen.config.value_types import FileName, Version
from imagegen.providers.registry import PROVIDERS, part
from imagegen.steps.resource import Fault, Strict

# cloudbase-init's name for a plugin or service: a Python class with its modules.
ClassName = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+\.[A-Z][A-Za-z0-9]*$")
]


# The log of the unattended part of the first boot; a test compares it with the template.
UNATTENDED_LOG: Final = "cloudbase-init-unattend.log"


def _check_log(name: str) -> str:
    if name.lower() == UNATTENDED_LOG:
        raise InvalidValue(
            f"the unattended part of cloudbase-init already logs to {UNATTENDED_LOG}",
            "choose another name, for example first-boot.log",
        )
    return name


class _ByCloud(Strict):
    """Lists of cloudbase-init's classes. Some classes work only on one cloud."""

    @pydantic.model_validator(mode="after")
    def _work_there(self) -> Self:
        known = table("cloudbase-init")["of_one_cloud"]
        names = [(cloud, at, name.rpartition(".")[2]) for cloud, listed in self for at, name in enumerate(listed or ())]
        return self.without(
            *(
                Fault(
                    known[name]["cloud"] != cloud,
                    (cloud, at),
                    f"{name} works only on {known[name]['cloud']}, not on {cloud}",
                    "leave it out",
                )
                for cloud, at, name in names
                if name in known
            )
        )


class Plugins(_ByCloud):
    """cloudbase-init's plugins on each cloud, in the order in which they run."""


class Services(_ByCloud):
    """cloudbase-init's metadata services on each cloud. The first service that answers is used."""


def _by_cloud(section: type[Strict], example: str) -> type[Strict]:
    """The section with a list of classes for each cloud."""
    fields: Any = {
        name: (
            list[ClassName] | None,
            pydantic.Field(
                default=None,
                description=f"The list on {part(name, 'settings').TITLE}. Default: the catalogue's list.",
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
    """The logs of cloudbase-init."""

    file: Annotated[str, FileName, pydantic.AfterValidator(_check_log)] = pydantic.Field(
        default="cloudbase-init.log",
        description="The name of the log file, in the log folder of cloudbase-init.",
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?$",
        examples=["first-boot.log"],
    )
    debug: bool = pydantic.Field(
        default=False, description="Log everything, including user data with its bootstrap token.", examples=[True]
    )
    serial_port: str | None = pydantic.Field(
        default=None,
        description="Also log to this serial port. Everybody who can read the machine's console can read it. "
        "Without `debug`, user data and the output of its scripts are not logged.",
        pattern=r"^COM[1-9],[0-9]+,[NEO],[78]$",
        examples=["COM1,115200,N,8"],
    )


class CloudbaseInit(Strict):
    """cloudbase-init, which sets up the machine as a node at its first boot."""

    version: Version = pydantic.Field(
        default="1.1.8", description='The version of cloudbase-init, in quotes: "1.1.8".', examples=["1.1.7"]
    )
    user: Annotated[str, FileName] = pydantic.Field(
        default="capi",
        description="The administrator that cloudbase-init creates.",
        pattern=r"^[a-z][a-z0-9_-]{0,19}$",
        examples=["operator"],
    )
    groups: list[Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9 -]{0,63}$")]] = pydantic.Field(
        default=["Administrators"], description="The groups of that user.", min_length=1, examples=[["Users"]]
    )
    plugins: Plugins = pydantic.Field(
        description="The plugins that cloudbase-init runs, in this order.", default_factory=Plugins.model_construct
    )
    metadata_services: Services = pydantic.Field(
        description="The services from which cloudbase-init gets metadata and user data.",
        default_factory=Services.model_construct,
    )
    logging: Logging = pydantic.Field(
        description="The logs of cloudbase-init.", default_factory=Logging.model_construct
    )
    real_time_clock_utc: bool = pydantic.Field(
        default=False, description="Set the machine's hardware clock to UTC. NTPClientPlugin does it.", examples=[True]
    )


class Ssh(Strict):
    """An OpenSSH server that accepts keys only. Each machine generates its own host keys."""

    source: Literal["capability", "zip"] = pydantic.Field(
        default="capability",
        description="`capability`: the OpenSSH server of Windows; `zip`: the archive of Win32-OpenSSH.",
        examples=["zip"],
    )
    version: str | None = pydantic.Field(
        default=None,
        description="The version of the archive. Default: the catalogue's version.",
        pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(p[0-9]+)?$",
        examples=["9.8.3.0"],
    )
    port: int = pydantic.Field(default=22, description="The port of the server.", ge=1, le=65535, examples=[2222])
    shell: Literal["powershell", "cmd"] = pydantic.Field(
        default="powershell", description="The shell of an SSH session.", examples=["cmd"]
    )

    @pydantic.model_validator(mode="after")
    def _has_that_version(self) -> Self:
        return self.without(
            Fault(
                self.version and self.source != "zip",
                ("version",),
                "the capability of Windows has a fixed version",
                "leave it out, or write source: zip",
            )
        )
