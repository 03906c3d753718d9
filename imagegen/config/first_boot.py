"""What a config says about a machine's first boot and about reaching it."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.config.words import Version
from imagegen.resources.model import Strict

# As cloudbase-init names its plugins and services: a Python class by its whole name.
ClassName = Annotated[
    str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+\.[A-Z][A-Za-z0-9]*$")
]


class Plugins(Strict):
    """cloudbase-init's plugins on each cloud, in the order in which they run."""

    aws: Annotated[
        list[ClassName] | None,
        pydantic.Field(
            description="On AWS; the catalogue's when left out.",
            min_length=1,
            examples=[["cloudbaseinit.plugins.common.userdata.UserDataPlugin"]],
        ),
    ] = None
    azure: Annotated[
        list[ClassName] | None,
        pydantic.Field(
            description="On Azure; the catalogue's when left out.",
            min_length=1,
            examples=[["cloudbaseinit.plugins.common.userdata.UserDataPlugin"]],
        ),
    ] = None


class Services(Strict):
    """cloudbase-init's metadata services on each cloud; the first that answers is asked."""

    aws: Annotated[
        list[ClassName] | None,
        pydantic.Field(
            description="On AWS; the catalogue's when left out.",
            min_length=1,
            examples=[["cloudbaseinit.metadata.services.ec2service.EC2Service"]],
        ),
    ] = None
    azure: Annotated[
        list[ClassName] | None,
        pydantic.Field(
            description="On Azure; the catalogue's when left out.",
            min_length=1,
            examples=[["cloudbaseinit.metadata.services.azureservice.AzureService"]],
        ),
    ] = None


class Logging(Strict):
    """What cloudbase-init tells of its work."""

    file: Annotated[
        str,
        pydantic.Field(
            description="The log's name in cloudbase-init's log folder.",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            examples=["first-boot.log"],
        ),
    ] = "cloudbase-init.log"
    debug: Annotated[
        bool,
        pydantic.Field(description="Tell everything, user data with its bootstrap token included.", examples=[True]),
    ] = False
    serial_port: Annotated[
        str | None,
        pydantic.Field(
            description="Also tell it to a serial port, which whoever may read the cloud's console reads.",
            pattern=r"^COM[1-9],[0-9]+,[NEO],[78]$",
            examples=["COM1,115200,N,8"],
        ),
    ] = None


class CloudbaseInit(Strict):
    """What makes a node of the machine at its first boot."""

    version: Annotated[
        Version, pydantic.Field(description='The cloudbase-init version, quoted: "1.1.8".', examples=["1.1.7"])
    ] = "1.1.8"
    user: Annotated[
        str,
        pydantic.Field(
            description="The administrator that cloudbase-init creates.",
            pattern=r"^[a-z][a-z0-9_-]{0,19}$",
            examples=["operator"],
        ),
    ] = "capi"
    groups: Annotated[
        list[Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9 -]{0,63}$")]],
        pydantic.Field(description="The groups of that user.", min_length=1, examples=[["Users"]]),
    ] = ["Administrators"]
    plugins: Annotated[
        Plugins, pydantic.Field(description="What it does, and in which order.", default_factory=Plugins)
    ]
    metadata_services: Annotated[
        Services,
        pydantic.Field(description="Where it asks for metadata and user data.", default_factory=Services),
    ]
    logging: Annotated[Logging, pydantic.Field(description="What it tells.", default_factory=Logging)]
    real_time_clock_utc: Annotated[
        bool,
        pydantic.Field(description="The machine's clock runs in UTC; NTPClientPlugin sets it so.", examples=[True]),
    ] = False


class Ssh(Strict):
    """An OpenSSH server that takes keys only; each machine makes its own host keys."""

    source: Annotated[
        Literal["capability", "zip"],
        pydantic.Field(description="Windows' own capability, or Win32-OpenSSH's archive.", examples=["zip"]),
    ] = "capability"
    version: Annotated[
        str | None,
        pydantic.Field(
            description="The archive's version; the catalogue's when left out.",
            pattern=r"^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(p[0-9]+)?$",
            examples=["9.8.3.0"],
        ),
    ] = None
    port: Annotated[int, pydantic.Field(description="The port it listens on.", ge=1, le=65535, examples=[2222])] = 22
    shell: Annotated[
        Literal["powershell", "cmd"], pydantic.Field(description="The shell of a session.", examples=["cmd"])
    ] = "powershell"
