"""What the catalogue knows about the chosen versions, and no key of a config can set: the records that steps read, each
with its origin."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, Literal

from imagegen.catalog.facts import sources

if TYPE_CHECKING:
    from imagegen.config.yaml import YamlPath


@dataclasses.dataclass(frozen=True)
class HotFix:
    """A registry value that this Windows release needs."""

    key: str
    name: str
    data: int
    reason: str

    def __str__(self) -> str:
        return f"{self.key}\\{self.name} = {self.data}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """The configuration file of a cloud's own agent. With it, the agent does not run the user data: cloudbase-init
    does."""

    path: str
    config: str

    def __str__(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True)
class RestrictedAddress:
    """An address of the cloud that only SYSTEM and the members of a local group may use on a node."""

    address: str
    ports: tuple[int, ...]
    group: str
    rule: str
    """The name of the firewall rule."""
    members: tuple[str, ...]
    """The accounts of the image's own services that need the address, and those that the target names."""

    def __str__(self) -> str:
        ports = " and ".join(map(str, self.ports))
        return f"{self.address}, TCP {ports}: for SYSTEM and the group {self.group}"


@dataclasses.dataclass(frozen=True)
class Ports:
    """Some ports in a row."""

    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count - 1

    def __str__(self) -> str:
        return str(self.start) if self.count == 1 else f"{self.start} to {self.end}"


@dataclasses.dataclass(frozen=True)
class ExcludedPorts:
    """Ports that Windows must not give to programs which ask for any port."""

    protocol: str
    start: int
    end: int
    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.protocol.upper()} {Ports(self.start, self.count)}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class CredentialProviderApi:
    """How kubelet of a minor reads its credential providers."""

    config: str
    """The API version of its configuration file."""
    request: str
    """The API version of what it asks the programs."""
    gate: str | None
    """The feature gate that must be enabled."""
    plain_name: bool
    """Whether it also needs the program under its name without .exe."""

    def __str__(self) -> str:
        return f"{self.config} and {self.request}"


@dataclasses.dataclass(frozen=True)
class HyperV:
    """What isolates pods with Hyper-V, if the config wants that."""

    builds: tuple[int, ...]
    """The builds of Windows for which containerd gets a handler."""
    gate: str
    """kubelet's feature gate with Docker. Empty if it needs none."""

    def __str__(self) -> str:
        builds = f"handlers for the builds {', '.join(map(str, self.builds))}" if self.builds else ""
        return builds or self.gate or "no pod is isolated"


@dataclasses.dataclass(frozen=True)
class Updates:
    """What is known about the updates that the config wants."""

    categories: list[str]
    """The GUIDs of the categories."""
    kbs: list[dict[str, str | int | None]]
    """Each KB with the revision (`ubr`) that it brings. None if it is no cumulative update, or a newer one."""
    codes: list[dict[str, str]]
    """What codes of Windows Update mean."""

    def __str__(self) -> str:
        known = [f"{row['kb']} brings the revision {row['ubr']}" for row in self.kbs if row["ubr"] is not None]
        return ", ".join([*self.categories, *known]) or "the meaning of Windows Update's codes"


@dataclasses.dataclass(frozen=True)
class CniFile:
    """A file of a network plugin, which a node fills in when it joins."""

    name: str
    folder: str | None
    """Where it then goes: a folder of the layout. None: the node's script uses it itself."""
    text: str | None = None
    """What is in it. None: the step has a template with its name."""

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class CniArchive:
    """The product that is the archive of a network plugin, and its programs without .exe, at the top of the archive."""

    product: str
    programs: tuple[str, ...]

    def __str__(self) -> str:
        return self.product


@dataclasses.dataclass(frozen=True)
class HnsValue:
    """A value of Windows' network service that a network plugin needs."""

    name: str
    data: str

    def __str__(self) -> str:
        return f"{self.name} = {self.data}"


@dataclasses.dataclass(frozen=True)
class Wins:
    """How a version of wins reads its configuration, and what it may start."""

    white_list: str
    """The key of its list of programs: it ignores other keys, and starts every program if it finds no list."""
    replaces_itself: bool
    """Whether it replaces itself by another program, unless its configuration forbids it."""
    programs: tuple[str, ...]
    """The programs of the default policy, below the install path."""

    def __str__(self) -> str:
        return f"{', '.join(self.programs) or 'those of the policy'} ({self.white_list})"


@dataclasses.dataclass(frozen=True)
class TrustedCertificate:
    """A certificate that the image's Windows trusts: a root, or the publisher of signed scripts."""

    store: str
    """Root or TrustedPublisher."""
    thumbprint: str
    """The SHA-1, as Windows shows it."""
    subject: str

    def __str__(self) -> str:
        return f"{self.subject} ({self.thumbprint}), in the store {self.store}"


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the catalogue knows about the chosen versions and no key can set. None: the catalogue does not know.

    `imagegen explain` and `imagegen steps` show the texts below the fields."""

    windows_build: int | None
    """The build number of Windows that the base image must have."""
    hyper_v: HyperV
    """What isolates pods with Hyper-V."""
    updates: Updates
    """What is known about Windows updates."""
    certificates: tuple[TrustedCertificate, ...]
    """The certificates that the image trusts: roots of the config, and the publishers of signed scripts."""
    all_signed: bool
    """Whether PowerShell runs only signed scripts (AllSigned)."""
    script_policy: str
    """The option of powershell.exe with which the image's scripts run. Empty if all of them are signed."""
    hot_fixes: tuple[HotFix, ...]
    """Registry values that this Windows release needs for containers."""
    closed_folders: tuple[str, ...]
    """The folders of drive C that only SYSTEM and Administrators have access to, with everything in them: those of
    Linux, and those above the install path."""
    program_folders: tuple[str, ...]
    """The other folders with programs of the config (`executables`): only SYSTEM and Administrators can change them."""
    dynamic_ports: Ports
    """The ports that Windows gives to programs which ask for any port."""
    excluded_ports: tuple[ExcludedPorts, ...]
    """Ports that Windows must not give to such programs."""
    excluded_ports_on_cloud: tuple[ExcludedPorts, ...] | None
    """Ports that Windows must not give to such programs on this cloud."""
    crictl: str | None
    """The crictl version for this Kubernetes version."""
    kubeadm_joins_as_system: bool
    """Whether kubeadm can run as LocalSystem."""
    kubeadm_writes_drives: bool
    """Whether kubeadm gives the paths of kubelet's configuration a drive."""
    kubelet_has_priority_class: bool
    """Whether kubelet has the flag for the priority of its process."""
    kube_log_runner: str
    """The Kubernetes release whose kube-log-runner writes kubelet's log."""
    nssm: str
    """The version of nssm that can run kubelet."""
    debug_tools: str
    """The commit of Microsoft's scripts for the network of nodes."""
    node_checks: str
    """The commit of sig-windows' checks of a node."""
    credential_provider_api: CredentialProviderApi | None
    """The API versions of kubelet's credential providers."""
    containerd_config_version: int | None
    """The schema version of containerd's configuration file."""
    containerd_cni_bin_dirs: bool | None
    """Whether that file can name several folders of CNI plugins."""
    containerd_scrubs_logs: bool
    """Whether containerd's log can leave out the environment of containers."""
    docker_least_api: str | None
    """The oldest API version that Docker must answer."""
    cni_files: tuple[CniFile, ...]
    """The files of the network plugin that a node fills in when it joins."""
    cni_archive: CniArchive | None
    """The archive of the network plugin, if it has one of its own."""
    hns_values: tuple[HnsValue, ...]
    """The values of Windows' network service (HNS) that the network plugin needs."""
    cni_programs: tuple[str, ...]
    """The programs of containernetworking/plugins that the network plugin needs."""
    cni_plugins: str | None
    """The version of containernetworking/plugins."""
    cni_images: list[str]
    """The container images of the network plugin, if it runs in HostProcess pods. Those that the config lists are not
    here."""
    calico_version: str | None
    """The version of Calico, if it runs as services of the image."""
    calico_backend: str | None
    """Calico's backend: vxlan, or none if another plugin connects the pods and Calico only enforces policies."""
    wincni: str | None
    """The commit of microsoft/SDN that has wincni."""
    flannel_plugin: str | None
    """The version of flannel's network plugin."""
    overlay_port: int | None
    """The UDP port of the pod network, if it is an overlay."""
    pod_network: str | None
    """The name of the pod network in Windows' network service (HNS)."""
    kube_proxy_gates: tuple[str, ...]
    """The feature gates that kube-proxy of this minor needs on Windows."""
    has_source_address: bool | None
    """Whether kube-proxy needs an address of its own in the pod network, because that is an overlay."""
    asks_source_address: bool
    """Whether user data must say this address, because the cluster brings the pod network."""
    cni_api_version: int | None
    """The version of Windows' network service (HNS) for which network plugins write."""
    containerd_pins_images: bool
    """Whether this containerd tells kubelet of pinned images."""
    cloudbase_init_product: str
    """The name under which Windows lists cloudbase-init."""
    first_boot_agent: AgentConfig | None
    """The configuration of the agent on the cloud's base images."""
    restricted_address: RestrictedAddress | None
    """The address of the cloud that containers must not use."""
    link_local_routes: tuple[str, ...]
    """The addresses of the cloud to which a node's adapter has routes of its own."""
    wins: Wins | None
    """How this version of wins reads its list of programs, and the programs of the default policy."""
    gmsa_plugin: str | None
    """The product that reads the credentials of gMSAs, if the cloud has one."""
    ssh_tag: str | None
    """The tag of the release of Win32-OpenSSH, if it comes from there."""


Kind = Literal["default", "catalogue", "file", "set"]
FACTS = "facts"
_SHOWN_AS_TEXT: Final = (
    *(AgentConfig, CniArchive, RestrictedAddress, Ports, CredentialProviderApi, HyperV, Updates, Wins),
)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a value comes from. `where` is `file:line`, the command-line option, or a table and row of the catalogue.
    `source` is what the row was taken from, and `read` is the day."""

    kind: Kind
    where: str = ""
    source: str = ""
    read: str = ""


@dataclasses.dataclass(frozen=True)
class CatalogueValue:
    """A value of the catalogue: for a key that the config leaves out, or for a fact that has no key."""

    path: YamlPath
    value: Any
    origin: Origin

    @property
    def shown(self) -> object:
        """The value as `imagegen explain` shows it."""
        if isinstance(self.value, tuple):
            return [str(record) for record in self.value]
        return str(self.value) if isinstance(self.value, _SHOWN_AS_TEXT) else self.value


def fact(name: str, value: object, origin: Origin) -> CatalogueValue:
    return CatalogueValue((FACTS, name), value, origin)


def find_origin(name: str, row: str, source: str | None) -> Origin:
    """The origin of a value in a table's row, with the source of the row."""
    said = sources(name)[source] if source else {"from": "", "read": ""}
    return Origin("catalogue", f"{name} {row}", said["from"], said["read"])
