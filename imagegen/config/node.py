"""The sections of a config for the node: Windows, Kubernetes, the container runtime and the network."""

import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

import pydantic

from imagegen.catalog.facts import limit_of, table
from imagegen.config.checks import check_once, find_cni_faults, find_containerd_faults, find_kubelet_faults
from imagegen.config.value_types import (
    DnsName,
    DockerVersion,
    Duration,
    FileName,
    HttpsUrl,
    ImageRef,
    Kb,
    Line,
    PlainFolder,
    ProxyUrl,
    Registry,
    RelativePath,
    TaggedImage,
    TimeZone,
    Unproxied,
    Version,
)
from imagegen.providers.settings import EnvName, one_variable
from imagegen.steps.resource import Fault, PastedSha256, Strict

if TYPE_CHECKING:
    CniPlugin = str
    FixSet = str
else:
    CniPlugin = Literal[*table("cni")["plugins"]]
    FixSet = Literal[*table("windows")["fix_sets"]]

_SETS = "; ".join(f"`{name}`: {row['title']}" for name, row in table("windows")["fix_sets"].items())
FlagName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,60}$")]
GateName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{1,80}$")]


class Updates(Strict):
    """Windows updates to install during the build."""

    categories: list[Literal["critical", "security", "rollups", "updates", "definitions", "feature-packs"]] = (
        pydantic.Field(
            default=[],
            description="Install every update of these categories. `definitions`: also Defender's own updates.",
            examples=[["critical", "security"]],
        )
    )
    kbs: list[Kb] = pydantic.Field(
        default=[], description="Install these updates, whatever their category.", examples=[["KB5066782"]]
    )
    exclude: list[Kb] = pydantic.Field(
        default=[], description="Updates that are never installed.", examples=[["KB5034439"]]
    )

    @pydantic.model_validator(mode="after")
    def _something(self) -> Self:
        if not self.categories and not self.kbs:
            raise ValueError("name categories or kbs: updates without either install nothing")
        only_kbs = "has no effect: without categories, only the updates in kbs are installed"
        both = [
            Fault(kb in self.kbs, ("exclude", at), f"{kb} is both in kbs and in exclude", "remove it from one of them")
            for at, kb in enumerate(self.exclude)
        ]
        idle = [
            Fault(
                not self.categories and kb not in self.kbs,
                ("exclude", at),
                f"excluding {kb} {only_kbs}",
                "leave it out, or set categories",
            )
            for at, kb in enumerate(self.exclude)
        ]
        return self.without(*both, *idle)


class Windows(Strict):
    """The Windows release of the image."""

    release: str = pydantic.Field(
        description="The Windows Server release: 2019, 2022, 2025 or annual.",
        pattern=r"^[a-z0-9]{1,20}$",
        examples=["2022", "2025", "2019", "annual"],
    )
    edition: Literal["core", "full"] = pydantic.Field(
        default="core", description="`core` has no desktop; `full` has one.", examples=["full"]
    )
    time_zone: TimeZone | None = pydantic.Field(
        default=None,
        description="The time zone, by its Windows name; with `_dstoff` at its end, without daylight saving time. "
        "Default: what Windows Setup chooses at a node's first boot.",
        examples=["W. Europe Standard Time"],
    )
    updates: Updates | None = pydantic.Field(
        default=None, description="Updates to install in addition to those of the base image. Default: none."
    )
    hyper_v: Literal["none", "tools", "isolation"] = pydantic.Field(
        default="none",
        description="`tools`: the management commands; `isolation`: also the hypervisor, for Hyper-V isolated pods.",
        examples=["isolation"],
    )
    page_file_mb: int | None = pydantic.Field(
        default=None,
        description="A page file of this fixed size on drive C, in MB. Default: as the base image has it.",
        ge=512,
        le=65536,
        examples=[8096],
    )
    disable_weak_tls: bool = pydantic.Field(
        default=False,
        description="Disable TLS 1.0 and 1.1, RC4 and Triple DES in Windows' own TLS (Schannel), which WinRM, .NET and "
        "PowerShell use. kubelet and containerd have their own.",
        examples=[True],
    )
    fixes: list[FixSet] = pydantic.Field(
        default=[],
        description="Sets of more fixes that Windows ships disabled. They change HNS and the virtual switch: test them "
        f"with your network plugin first. {_SETS}.",
        examples=[[*table("windows")["fix_sets"]]],
    )
    container_images: list[ImageRef] = pydantic.Field(
        default=[],
        description="Container base images to pull onto the image. Each must match the Windows release.",
        examples=[["mcr.microsoft.com/windows/servercore:ltsc2022"]],
    )
    trusted_roots: list[RelativePath] = pydantic.Field(
        default=[],
        description="PEM or DER files in the folder of the config with root certificates that the machine trusts: of "
        "your own certificate authority, or of one that Windows would fetch from the internet.",
        examples=[["roots/example-root.pem"]],
    )

    @pydantic.model_validator(mode="after")
    def _has_edition_and_fixes(self) -> Self:
        release, sets = table("windows")["releases"].get(self.release, {}), table("windows")["fix_sets"]
        editions = release.get("editions", [self.edition])
        fixes = [
            Fault(
                self.release not in sets[name]["releases"],
                ("fixes", at),
                f"the set {name} has no fix for Windows {self.release}",
                f"remove it: it has fixes for {' and '.join(sets[name]['releases'])}",
            )
            for at, name in enumerate(self.fixes)
        ]
        return self.without(
            Fault(
                self.edition not in editions,
                ("edition",),
                f"{release.get('title')} has no edition {self.edition!r}",
                f"choose {' or '.join(editions)}",
            ),
            *fixes,
        )


class ImageTarball(Strict):
    """A container image in a tarball."""

    name: TaggedImage = pydantic.Field(
        description="The name of the image in the tarball, with registry and tag: pods use it.",
        examples=["registry.example.com/team/app:1.4"],
    )
    url: HttpsUrl = pydantic.Field(
        description="The https URL of the tarball, which `docker save` or `ctr images export` wrote.",
        examples=["https://artifacts.example.com/app.tar.gz"],
    )
    sha256: PastedSha256 | None = pydantic.Field(
        default=None, description="The sha256 that the file must have, in hexadecimal.", examples=["0" * 64]
    )


class Kubernetes(Strict):
    """The node components."""

    version: Version = pydantic.Field(description='The Kubernetes version, in quotes: "1.36.4".', examples=["1.36.4"])
    install_path: PlainFolder = pydantic.Field(
        default="C:\\k",
        description="The folder of kubelet, kubeadm, kubectl and crictl. Its path has no spaces.",
        examples=["C:\\kubernetes"],
    )
    source: Literal["binaries", "node-tarball"] = pydantic.Field(
        default="binaries",
        description="`binaries`: single programs; `node-tarball`: kubernetes-node-windows-amd64.tar.gz.",
        examples=["node-tarball"],
    )
    service_manager: Literal["windows", "nssm"] = pydantic.Field(
        default="windows", description="The service manager that keeps kubelet running.", examples=["nssm"]
    )
    feature_gates: dict[GateName, bool] = pydantic.Field(
        default={}, description="kubelet's feature gates.", examples=[{"WindowsGracefulNodeShutdown": False}]
    )
    kubelet_flags: dict[FlagName, Line] = pydantic.Field(
        default={},
        description="Additional flags of kubelet, without dashes. The flags that kubeadm writes override them.",
        examples=[{"image-gc-high-threshold": "85"}],
    )
    pause_image: ImageRef | None = pydantic.Field(
        default=None,
        description="The sandbox image. Default: the catalogue's image for this Kubernetes version and "
        "Windows release.",
        examples=["registry.example.com/pause:3.10.2"],
    )

    @pydantic.model_validator(mode="after")
    def _kubelet_knows(self) -> Self:
        return self.without(*find_kubelet_faults(self))


class Containerd(Strict):
    """containerd as container runtime."""

    version: Version = pydantic.Field(description='The containerd version, in quotes: "2.3.4".', examples=["2.3.4"])
    discard_unpacked_layers: bool = pydantic.Field(
        default=True,
        description="Delete the compressed layers of an image after unpacking: saves disk space.",
        examples=[False],
    )
    image_pull_progress_timeout: Duration | None = pydantic.Field(
        default=None,
        description="Cancel an image pull that makes no progress for this time. Default: containerd's own.",
        examples=["10m"],
    )
    max_concurrent_downloads: int | None = pydantic.Field(
        default=None,
        description="How many layers of one image are downloaded at a time. Default: containerd's own.",
        ge=1,
        le=50,
        examples=[5],
    )
    registry_mirrors: dict[
        Annotated[Registry, FileName], Annotated[list[HttpsUrl], pydantic.AfterValidator(check_once)]
    ] = pydantic.Field(
        default={},
        description="The mirrors of each registry. containerd tries them in this order, and then the registry.",
        examples=[{"docker.io": ["https://mirror.example.com/"]}],
    )
    settings: str | None = pydantic.Field(
        default=None,
        description="Additional containerd settings in TOML. They become a file that containerd's "
        "configuration imports.",
        max_length=20000,
        examples=["[debug]\nlevel = 'info'\n"],
    )

    @pydantic.model_validator(mode="after")
    def _has_its_settings(self) -> Self:
        empty = [
            Fault(
                not mirrors,
                ("registry_mirrors", registry),
                f"{registry} has no mirror",
                "add a mirror, or leave the registry out",
            )
            for registry, mirrors in self.registry_mirrors.items()
        ]
        return self.without(*empty, *find_containerd_faults(self))


class Docker(Strict):
    """Docker as container runtime."""

    version: DockerVersion = pydantic.Field(description="The Docker version, in quotes.", examples=["28.5.1"])
    edition: Literal["moby", "mirantis"] = pydantic.Field(
        default="moby",
        description="`moby`: the open-source build; `mirantis`: the build of Mirantis, with its own licence.",
        examples=["mirantis"],
    )
    channel: Literal["stable", "test"] = pydantic.Field(
        default="stable",
        description="The channel of Moby's downloads that has this version. Previews are only in `test`.",
        examples=["test"],
    )
    cri_dockerd: Version | None = pydantic.Field(
        default=None,
        description="The cri-dockerd version. Docker needs cri-dockerd from Kubernetes 1.24 on.",
        examples=["0.3.20"],
    )

    @pydantic.model_validator(mode="after")
    def _is_in_its_channel(self) -> Self:
        return self.without(
            Fault(
                self.edition != "moby" and self.channel != "stable",
                ("channel",),
                f"channel has no effect with the edition {self.edition}",
                "leave it out",
            ),
            Fault(
                self.edition == "moby" and "-" in self.version and self.channel == "stable",
                ("version",),
                f"{self.version} is a preview, which the stable channel does not have",
                "write channel: test",
            ),
        )


class Runtime(Strict):
    """The container runtime: exactly one of containerd and docker."""

    containerd: Containerd | None = pydantic.Field(default=None, description="containerd.")
    docker: Docker | None = pydantic.Field(default=None, description="Docker.")
    fake_host_network: bool = pydantic.Field(
        default=False,
        description="Create a NAT network named `host`: kubelet looks for it on Docker nodes.",
        examples=[True],
    )

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.containerd is None) == (self.docker is None):
            raise ValueError("name exactly one runtime: containerd or docker")
        return self


class Cni(Strict):
    """The pod network. `imagegen catalog cni` lists the keys that each plugin accepts."""

    plugin: CniPlugin = pydantic.Field(
        default="none",
        description="The network plugin to install on the image. `none`: the cluster installs it.",
        examples=["calico"],
    )
    version: Version | None = pydantic.Field(
        default=None,
        description="The version of the plugin. Default: the catalogue's version, if it has one.",
        examples=["3.31.0"],
    )
    mode: Literal["host-gw", "vxlan", "hostprocess"] | None = pydantic.Field(
        default=None,
        description="The backend of flannel: vxlan (default) or host-gw. How Calico runs: in HostProcess pods "
        "(hostprocess, the default), or as services of the image, with its vxlan backend.",
        examples=["vxlan"],
    )
    vni: int | None = pydantic.Field(
        default=None, description="The VNI of the overlay network.", ge=1, le=16777215, examples=[4096]
    )
    port: int | None = pydantic.Field(
        default=None, description="The UDP port of the overlay network.", ge=1, le=65535, examples=[4789]
    )
    mtu: int | None = pydantic.Field(
        default=None, description="The MTU of the pod network.", ge=576, le=9000, examples=[1400]
    )
    policy: Literal["calico"] | None = pydantic.Field(
        default=None,
        description="What enforces network policies beside the plugin: Calico, as services of the image. Default: "
        "the plugin itself, or nothing.",
        examples=["calico"],
    )
    policy_version: Version | None = pydantic.Field(
        default=None,
        description="The version of Calico with `policy`. Default: the catalogue's version.",
        examples=["3.31.0"],
    )

    @pydantic.model_validator(mode="after")
    def _fits_plugin(self) -> Self:
        return self.without(*find_cni_faults(self))


class Proxy(Strict):
    """The proxy of the machine and its programs, as machine-wide environment variables."""

    http: ProxyUrl | None = pydantic.Field(
        default=None, description="HTTP_PROXY, without user and password.", examples=["http://proxy.example.com:3128"]
    )
    https: ProxyUrl | None = pydantic.Field(
        default=None,
        description="HTTPS_PROXY, without user and password. The builder also downloads through it if it is "
        "an `http://` proxy.",
        examples=["http://proxy.example.com:3128"],
    )
    no_proxy: list[Unproxied] = pydantic.Field(
        default=[],
        description="NO_PROXY: the hosts and networks that are reached without the proxy.",
        examples=[["169.254.169.254", ".svc"]],
    )

    @pydantic.model_validator(mode="after")
    def _some(self) -> Self:
        if self.http is None and self.https is None:
            raise ValueError("name http or https: no_proxy alone means nothing")
        return self

    @property
    def for_downloads(self) -> ProxyUrl | None:
        """The proxy for the builder's downloads. .NET Framework cannot use a proxy over TLS."""
        return self.https if self.https is not None and self.https.startswith("http://") else None


class RegistryCredentials(Strict):
    """The credentials of a registry, in environment variables of imagegen: a config has only the names of these."""

    registry: Registry = pydantic.Field(
        description="The registry: the part of an image's name before the first slash.",
        examples=["registry.example.com"],
    )
    username_env: EnvName = pydantic.Field(
        description="The environment variable with the user name.", examples=["REGISTRY_USERNAME"]
    )
    password_env: EnvName = pydantic.Field(
        description="The environment variable with the password, or with a token in its place.",
        examples=["REGISTRY_PASSWORD"],
    )

    @pydantic.model_validator(mode="after")
    def _two_variables(self) -> Self:
        return self.without(one_variable(self.username_env, self.password_env))


class HostNames(Strict):
    """The names that the cluster gives to machines of this image."""

    netbios_compatible: bool = pydantic.Field(
        default=True,
        description="cloudbase-init cuts host names to the 15 characters of a NetBIOS name.",
        examples=[False],
    )
    longest: str | None = pydantic.Field(
        default=None,
        description="The longest host name that a machine will have. imagegen checks that Windows accepts it.",
        pattern=r"^[A-Za-z0-9-]{1,253}$",
        examples=["win-md-0-x7k2p"],
    )
    pool: str | None = pydantic.Field(
        default=None,
        description="The name of the machine pool. imagegen checks that the cloud accepts it for Windows machines.",
        pattern=r"^[A-Za-z0-9-]{1,253}$",
        examples=["winp"],
    )
    dns_suffix: DnsName | None = pydantic.Field(
        default=None, description="The machines' primary DNS suffix.", examples=["nodes.example.com"]
    )

    @pydantic.model_validator(mode="after")
    def _is_valid_on_windows(self) -> Self:
        limit = limit_of("host_name")
        return self.without(
            Fault(
                self.longest and not re.search(limit["pattern"], self.longest),
                ("longest",),
                f"{self.longest} is not a valid host name: {limit['reason']}",
                "write a valid name, for example win-md-0-x7k2p",
            )
        )
