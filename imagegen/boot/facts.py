"""What was found on a machine that was started from an image, after its first boot and after a second one."""

from typing import Literal

from imagegen.boot.network_facts import KubeProxy as KubeProxy
from imagegen.boot.network_facts import NetworkPolicies as NetworkPolicies
from imagegen.boot.network_facts import PodNetwork as PodNetwork
from imagegen.boot.sealed import Sealed
from imagegen.boot.upkeep import Drift, Rejoin, Upgrade
from imagegen.steps.resource import Strict

PluginEnd = Literal["done", "failed", "not run"]


class Finding(Strict):
    """Something that is wrong."""

    text: str
    row: str = ""
    """The row of docs/reality.md that explains it."""


class Access(Strict):
    """An entry that gives somebody rights on a file or folder, also an inherited one."""

    path: str
    sid: str
    rights: str
    """Windows' own word for all of them: `Read`, `ReadAndExecute`, `Write`, `Modify`, `FullControl` or another one."""


class Setup(Strict):
    """What Windows Setup did at the first start."""

    failure: Finding | None
    """Why it did not end."""
    ran_complete_script: bool
    """Whether it found and ran SetupComplete.cmd."""
    first_boot: tuple[str, ...] | None
    """The lines in the log of first-boot.ps1, which is silent if it did everything. None if there is no such log."""


class CloudbaseInit(Strict):
    """What cloudbase-init did."""

    version: str
    """Empty if it did not run."""
    started_early: bool
    """Whether it was started before Windows Setup had ended."""
    is_done: bool
    """Whether it ended, and asks for no further restart."""
    crash: str
    """The error that ended it, or why it could not start. Empty if there was none."""
    restarts_forever: bool
    """Whether it asks for a restart at every start."""
    has_metadata: bool
    """Whether it found its cloud at each of its starts."""
    services: tuple[str, ...]
    """The configured metadata services, by class name."""
    plugins: dict[str, PluginEnd]
    """The configured plugins in their order, by class name, and what each has done on this machine."""
    unreported: tuple[str, ...]
    """The options for reports to the cloud that are off. None if its configuration cannot be read."""
    debug: bool
    """Whether its log has lines of the level debug, among them the output of user data's scripts."""
    log: str
    """The path of its log."""
    complaints: tuple[Finding, ...]
    """What its log says about itself that is wrong."""
    user_data_complaints: tuple[Finding, ...]
    """What its log says about user data that it could not use."""


class Join(Strict):
    """What kubeadm did."""

    runs: int
    failure: str
    """What it said last when it failed. Empty if it did not."""


class Kubelet(Strict):
    """The running kubelet."""

    is_running: bool
    failure: str
    """What it, or its service's program, said when it last ended, or why Windows did not start it. Else empty."""
    arguments: tuple[str, ...]
    """With which it runs."""
    kubeadm_arguments: tuple[str, ...]
    """Those that kubeadm wrote when the node joined."""
    lost_address: str
    """The address in its arguments, if the cluster does not know it. Else empty."""
    keeps_log: bool
    is_reached: bool
    """Whether Windows' firewall lets the API server connect to it."""
    shares_volumes: bool
    """Whether containers may change what is in the folder of the pods' volumes."""


class CredentialProvider(Strict):
    """A program from which kubelet gets credentials, as the config names it."""

    name: str
    is_registered: bool
    """Whether the kubelet that runs has registered it."""
    can_run: bool
    """Whether kubelet finds its program."""


class Service(Strict):
    """A service that an option of the config adds to the image."""

    name: str
    is_running: bool
    failure: str
    """Why it cannot run. Empty if nothing is known."""
    log: str
    """The path of its log. Empty if it keeps none."""
    readers: tuple[str, ...]
    """The SIDs that have rights on its log, without SYSTEM and the administrators."""


class Pod(Strict):
    """A pod that was started after the first boot, while no registry could be reached."""

    image: str
    """As the config names it. Empty for the sandbox, which every pod has."""
    failure: str
    """Why it did not start. Empty if it did."""


class Wins(Strict):
    """wins, which starts programs on the host for pods."""

    is_running: bool
    failure: str
    """Why it cannot run. Empty if nothing is known."""
    pipe: str
    """Empty if it does not run."""
    wanted_pipe: str
    """The pipe to which the wins in pods connects."""
    programs: tuple[str, ...] | None
    """Those that it starts. None: every program."""
    wanted_programs: tuple[str, ...]
    """Those that the config lets it start."""
    successor: str
    """The file by which it replaces its own program as soon as somebody writes it. Empty if there is none."""


class Gmsa(Strict):
    """The plugin from which Windows gets the credentials of gMSAs."""

    is_listed: bool
    """Whether Windows loads its class."""
    dll: str
    """The DLL of its class. Empty if the class is not registered."""
    has_dll: bool
    surrogate: bool
    """Whether its class runs in a process of its own, as Windows starts it."""
    is_open: bool
    """Whether administrators can change the list of such plugins."""
    sources: tuple[str, ...]
    """The sources of its events that Windows does not know."""


class Ssh(Strict):
    """The SSH server."""

    is_running: bool
    failure: str
    """Why it cannot run. Empty if nothing is known."""
    port: int
    """The port of its configuration. 0 if it cannot be read."""
    wanted_port: int
    is_reached: bool
    """Whether Windows' firewall lets others connect to this port, in every network."""
    accepts_passwords: bool
    keys_files: tuple[str, ...]
    """The files in which it looks for the keys of the accounts that can log on."""
    has_key: bool
    """Whether the cloud gave the machine a key, and cloudbase-init has the plugin that writes it."""
    logs_in: bool
    """Whether somebody with this key can log in."""
    host_keys: int
    """How many keys of the host there are."""
    keys_of_image: tuple[str, ...]
    """The keys of the host that were in the image: every node would have them."""
    shell: str
    wanted_shell: str


class Docker(Strict):
    """Docker, if it is the container runtime of the config."""

    failure: str
    """Why it does not answer. Empty if it does."""
    version: str
    """Empty if it is not there."""
    wanted_version: str
    keeps_log: bool
    """Whether its entries in the event log have texts."""
    lacks_network: bool
    """Whether the network that the config wants is missing."""


class DockerPods(Strict):
    """What starts pods with Docker."""

    name: str
    """`cri-dockerd`, or `kubelet`, which can ask Docker itself."""
    failure: str
    """Why it does not answer. Empty if it does."""
    endpoint: str
    """Where it answers."""
    kubelet_endpoint: str
    """Where kubelet looks for it."""
    plugin: str
    """The kind of network plugin that it asks."""
    folders: tuple[str, str]
    """Where it looks for network plugins and their configuration."""
    wanted_folders: tuple[str, str]
    sandbox_image: str
    wanted_sandbox_image: str


class Builder(Strict):
    """What the image's builder left: the ways by which Packer reached it."""

    listeners: tuple[str, ...]
    certificates: tuple[str, ...]
    rules: tuple[str, ...]
    accounts: tuple[str, ...]
    """Its accounts that can still log on."""
    profiles: tuple[str, ...]
    """The folders of its accounts that cannot."""


class Windows(Strict):
    """The settings of Windows, and what the config wants of them. Empty if it wants nothing."""

    time_zone: str
    wanted_time_zone: str
    dns_suffix: str
    wanted_dns_suffix: str
    power_plan: str
    """The GUID of the active plan."""
    keeps_time: bool
    """Whether the time service runs."""
    dynamic_ports: dict[str, int]
    """How many ports programs can get that ask for any port, by protocol."""
    wanted_dynamic_ports: int
    given_ports: tuple[str, ...]
    """The ports that such programs must not get, and can get, each with its reason."""
    scanned: tuple[str, ...]
    """The programs of the node whose file access Defender scans."""


class HyperV(Strict):
    """What a node has of Hyper-V, and what the config wants of it."""

    wanted: Literal["tools", "isolation"]
    service_runs: bool
    """Whether the service that the commands talk to runs."""
    has_commands: bool
    """Whether PowerShell has the commands."""
    runs_hypervisor: bool
    missing_handlers: tuple[str, ...]
    """The handlers for isolated pods that the configuration of the container runtime must have and has not."""
    missing_gate: str
    """The feature gate that kubelet needs and does not have. Empty if it needs none, or has it."""


class Updates(Strict):
    """What a node has of the Windows updates that the config wants."""

    missing: tuple[str, ...]
    """The KBs that the config names and the node has not."""
    offered: tuple[str, ...]
    """What Windows Update offers the node of the categories in the config."""
    waits_for_restart: bool
    proxy: str
    """The proxy that WinHTTP has. Empty if none."""


class Cloud(Strict):
    """What the cloud made of the machine."""

    wants_report: bool
    """Whether the cloud takes a machine for ready only when the machine reports that."""
    refusal: str | None
    """Why the cloud takes the machine for one that failed, in the cloud's words."""
    unanswered: tuple[str, ...]
    """The cloud's reasons for requests that it did not answer."""


class Reach(Strict):
    """Whether the processes of an account can connect to an address of the cloud that only some accounts may use."""

    account: str
    address: str
    port: int
    may: bool
    can: bool


class OwnFile(Strict):
    """A program or script of the operator's that the config places on the machine."""

    path: str
    state: Literal["there", "changed", "missing"]
    access: tuple[Access, ...]


class NodeFacts(Strict):
    """Everything that the checks look at."""

    setup: Setup
    cloud: Cloud
    windows: Windows
    hyper_v: HyperV | None = None
    """None if the config wants none of it."""
    updates: Updates | None = None
    """None if the config wants none."""
    host_name: str
    wanted_host_name: str
    cloudbase_init: CloudbaseInit
    unrendered: tuple[str, ...]
    """The files of user data in which a template was left as it is."""
    scripts_of_agents: tuple[str, ...]
    """The scripts in the user data that the cloud's own agents ran, by their tag."""
    join: Join
    kubelet: Kubelet
    nodes: tuple[str, ...]
    """The names of the nodes that registered with the cluster since the machine started."""
    wanted_node: str
    refused_scripts: tuple[str, ...] | None = None
    """The scripts that PowerShell refused, with the reasons. None if its policy is not AllSigned."""
    services: tuple[Service, ...]
    wins: Wins | None = None
    """None if the config has no wins."""
    gmsa: Gmsa | None = None
    """None if the image has no such plugin."""
    ssh: Ssh | None = None
    """None if the config has no SSH server."""
    credential_providers: tuple[CredentialProvider, ...]
    pods: tuple[Pod, ...]
    """The sandbox, and one pod of each image that was pulled while the image was built."""
    docker: Docker | None = None
    docker_pods: DockerPods | None = None
    pod_network: PodNetwork
    kube_proxy: KubeProxy
    policies: NetworkPolicies | None = None
    """None if the config adds nothing for it."""
    reached: tuple[Reach, ...]
    leaks: tuple[str, ...]
    """The files, and consoles, that hold a secret of the user data after one of the boots, without those that are
    closed to all others."""
    key_leaks: tuple[str, ...]
    """The files, and consoles, that hold the private key of a certificate that the cloud gave the machine, after one of
    the boots."""
    access: tuple[Access, ...]
    """The rights on the guarded folders, and on everything in them, after one of the boots."""
    own_files: tuple[OwnFile, ...]
    builder: Builder
    sealed: Sealed
    user_data_of_restart: bool
    """Whether cloudbase-init ran the user data at the second boot."""
    commands_of_restart: tuple[str, ...]
    """The commands of the user data that the second boot ran, as far as they are known."""
    changed_by_restart: tuple[str, ...]
    """What the second boot changed that it must not change."""
    # None if nobody has the bundle of the image, and the last two also if the node did not join.
    drift: Drift | None = None
    rejoin: Rejoin | None = None
    upgrade: Upgrade | None = None
