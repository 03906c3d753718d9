"""What a config says about pods' networks, proxies and the names of machines."""

from typing import TYPE_CHECKING, Literal, Self

import pydantic

from imagegen.catalog.facts import table
from imagegen.config.addresses import DnsName, ProxyUrl, Unproxied
from imagegen.config.words import Version
from imagegen.resources.model import Strict

if TYPE_CHECKING:
    CniPlugin = str
else:
    CniPlugin = Literal[*table("cni")["plugins"]]
KubeProxy = Literal["hostprocess", "wins", "service", "none"]


class Cni(Strict):
    """The pods' network. Which of the keys a plugin takes is the catalogue's: `imagegen catalog cni`."""

    plugin: CniPlugin = pydantic.Field(
        default="none",
        description="The plugin whose programs and configuration the image carries; `none`: the cluster brings it.",
        examples=["calico"],
    )
    version: Version | None = pydantic.Field(
        default=None,
        description="The plugin's version; the catalogue's, where it knows one, when left out.",
        examples=["3.31.0"],
    )
    mode: Literal["host-gw", "vxlan"] | None = pydantic.Field(
        default=None, description="How flannel carries packets.", examples=["vxlan"]
    )
    vni: int | None = pydantic.Field(
        default=None, description="The overlay's network number.", ge=1, le=16777215, examples=[4096]
    )
    port: int | None = pydantic.Field(
        default=None, description="The overlay's UDP port.", ge=1, le=65535, examples=[4789]
    )
    mtu: int | None = pydantic.Field(
        default=None, description="The largest packet of the pods' network.", ge=576, le=9000, examples=[1400]
    )


class Proxy(Strict):
    """The proxy that the machine and what runs on it use, as machine-wide environment variables."""

    http: ProxyUrl | None = pydantic.Field(
        default=None, description="HTTP_PROXY, without user and password.", examples=["http://proxy.example.com:3128"]
    )
    https: ProxyUrl | None = pydantic.Field(
        default=None,
        description="HTTPS_PROXY, without user and password. An `http://` proxy also carries the builder's downloads.",
        examples=["http://proxy.example.com:3128"],
    )
    no_proxy: list[Unproxied] = pydantic.Field(
        default=[], description="NO_PROXY: what is reached without it.", examples=[["169.254.169.254", ".svc"]]
    )

    @pydantic.model_validator(mode="after")
    def _some(self) -> Self:
        if self.http is None and self.https is None:
            raise ValueError("name http or https: no_proxy alone means nothing")
        return self

    @property
    def for_downloads(self) -> ProxyUrl | None:
        """The proxy that the builder downloads through: .NET Framework cannot speak TLS with a proxy."""
        return self.https if self.https is not None and self.https.startswith("http://") else None


class HostNames(Strict):
    """How the cluster will name machines of this image."""

    netbios_compatible: bool = pydantic.Field(
        default=True,
        description="Cut host names to the 15 characters that NetBIOS takes, as cloudbase-init does.",
        examples=[False],
    )
    longest: str | None = pydantic.Field(
        default=None,
        description="The longest name that a machine will have, to be checked against what Windows takes.",
        pattern=r"^[A-Za-z0-9-]{1,253}$",
        examples=["win-md-0-x7k2p"],
    )
    pool: str | None = pydantic.Field(
        default=None,
        description="The machine pool's name, to be checked against what the cloud takes for Windows.",
        pattern=r"^[A-Za-z0-9-]{1,253}$",
        examples=["winp"],
    )
    dns_suffix: DnsName | None = pydantic.Field(
        default=None, description="The machines' primary DNS suffix.", examples=["nodes.example.com"]
    )
