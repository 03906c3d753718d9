"""A captured image, and what its config says about the nodes that start from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.catalog.facts import paths, table
from imagegen.rehearsal.boot import hyper_v, updates
from imagegen.rehearsal.boot.docker import describe_docker
from imagegen.rehearsal.boot.images import NOTHING_PULLED, describe_pulled
from imagegen.rehearsal.boot.ssh import describe_ssh
from imagegen.rehearsal.boot.windows_settings import NOTHING_WANTED, describe_wanted
from imagegen.rehearsal.boot.wins import describe_wins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.docker import WantedDocker
    from imagegen.rehearsal.boot.drift import Bundle
    from imagegen.rehearsal.boot.hyper_v import WantedHyperV
    from imagegen.rehearsal.boot.images import Pulled
    from imagegen.rehearsal.boot.ssh import WantedSsh
    from imagegen.rehearsal.boot.updates import WantedUpdates
    from imagegen.rehearsal.boot.windows_settings import Wanted
    from imagegen.rehearsal.boot.wins import WantedWins
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec


@dataclasses.dataclass(frozen=True)
class Image:
    """A captured machine, and what the plan says of it."""

    machine: Machine
    provider: str
    kubernetes: str
    cloudbase_init: str
    layout: Mapping[str, str]
    """The image's folders by name."""
    cuts_host_names: bool = True
    """Whether cloudbase-init cuts host names to the length of a NetBIOS name."""
    accounts: Sequence[str] = ()
    """The accounts that the config expects on a node. They may log on as they could before."""
    own_files: Mapping[str, bytes | None] = dataclasses.field(default_factory=dict)
    """What the config places on a node, by the path: the bytes, or None where only the lock has their digest."""
    services: Sequence[str] = ()
    """The services that options of the config add."""
    credential_providers: Sequence[str] = ()
    """The names of kubelet's credential providers in the config."""
    before_join: Sequence[str] = ()
    """The operator's scripts that user data calls before kubeadm, by their paths."""
    after_join: Sequence[str] = ()
    """Those that it calls after kubeadm."""
    wanted: Wanted = NOTHING_WANTED
    """Of Windows."""
    hyper_v: WantedHyperV | None = None
    updates: WantedUpdates | None = None
    pulled: Pulled = NOTHING_PULLED
    """Of container images."""
    wins: WantedWins | None = None
    """None if the config has no wins."""
    gmsa: bool = False
    """Whether it has the plugin of gMSAs."""
    ssh: WantedSsh | None = None
    """None if the config has no SSH server."""
    docker: WantedDocker | None = None
    """Of Docker; None with containerd."""
    network: str = ""
    """The network plugin that the config puts on the image. Empty if the cluster installs its own."""
    sets_network: str = ""
    """The script that user data calls to give the node its part of the pod network. Empty if there is none."""
    has_kube_proxy: bool = False
    """Whether the config adds kube-proxy as a service."""
    flannel: str = ""
    """The backend of flannel, if it is the image's network plugin. Empty if it is not."""
    kube_proxy_pods: str = ""
    """The folder in which the pods of a DaemonSet place kube-proxy, which wins starts. Empty if there are none."""
    has_policy: bool = False
    """Whether the config adds what enforces network policies beside the plugin."""
    calico_pods: str = ""
    """The version of Calico whose DaemonSet the cluster has. Empty if it has none."""
    accounts_of_cluster: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The service accounts whose kubeconfig user data must write, by the path of the file."""
    bundle: Bundle | None = None
    """The bundle that made it. None: what drifts on a node is not looked for."""

    @property
    def network_of_cluster(self) -> str:
        """The name that user data must say, if the cluster brings the network. Nothing in the rehearsal creates it."""
        return "" if self.network or not self.has_kube_proxy else "of-the-cluster"


def describe_image(machine: Machine, spec: Spec, bundle: Bundle | None = None) -> Image:
    """The image that a target's captured machine is."""
    config = spec.config
    before, after = _scripts(spec, "pre"), _scripts(spec, "post")
    return Image(
        machine,
        spec.provider,
        config.kubernetes.version,
        config.cloudbase_init.version,
        {**paths(), "kubernetes": config.kubernetes.install_path},
        config.host_names.netbios_compatible,
        spec.settings.restricted_address_users,
        {**before, **after, **_list_placed(spec)},
        _list_services(spec),
        [provider.name for provider in config.credential_providers],
        tuple(before),
        tuple(after),
        describe_wanted(spec),
        hyper_v.describe_wanted(spec),
        updates.describe_wanted(spec),
        describe_pulled(spec),
        describe_wins(spec),
        config.gmsa is not None and spec.facts.gmsa_plugin is not None,
        describe_ssh(spec),
        describe_docker(spec),
        *_describe_network(spec),
        bundle,
    )


def _list_placed(spec: Spec) -> dict[str, None]:
    """The files whose bytes only the lock knows: the operator's programs, and the scripts that need each other."""
    tools = table("debug-tools")
    scripts = [rf"{tools['folder']}\{name}" for name in tools["files"]] if spec.config.debug_tools else []
    return dict.fromkeys([*(program.path for program in spec.config.executables), *scripts])


def _list_services(spec: Spec) -> tuple[str, ...]:
    """The services that options of the config add."""
    config = spec.config
    calico = spec.facts.calico_version is not None
    asked = {
        **{"csi-proxy": config.csi_proxy is not None, "flanneld": config.cni.plugin == "flannel"},
        **{"hybrid-overlay-node": config.cni.plugin == "ovn-kubernetes", "CalicoNode": calico, "CalicoFelix": calico},
    }
    return tuple(name for name, is_asked in asked.items() if is_asked)


def _describe_network(spec: Spec) -> tuple[str, str, bool, str, str, bool, str, dict[str, str]]:
    """The image's network plugin, the script that user data must call for it, and the kubeconfigs that it needs."""
    cni, folder = spec.config.cni, spec.config.kubernetes.install_path
    plugin, has_kube_proxy = cni.plugin, spec.config.kube_proxy == "service"
    accounts = {
        **{"flannel": plugin == "flannel", "kube-proxy": has_kube_proxy},
        **{"hybrid-overlay": plugin == "ovn-kubernetes", "calico": spec.facts.calico_version is not None},
    }
    return (
        "" if plugin == "none" else plugin,
        rf"{folder}\set-pod-network.ps1" if spec.facts.cni_files else "",
        has_kube_proxy,
        (spec.config.cni.mode or "") if plugin == "flannel" else "",
        rf"{folder}\kube-proxy" if spec.config.kube_proxy == "wins" and plugin != "none" else "",
        cni.policy is not None,
        (cni.version or "") if (plugin, cni.mode) == ("calico", "hostprocess") else "",
        {rf"{paths()['etc_kubernetes']}\{name}.conf": name for name, is_asked in accounts.items() if is_asked},
    )


def _scripts(spec: Spec, when: str) -> dict[str, bytes]:
    """The operator's scripts for kubeadm by their documented paths, in their order."""
    folder = rf"{spec.config.kubernetes.install_path}\{when}-kubeadm"
    files = (file for key, file in spec.own_files.items() if key.startswith(f"kubeadm_scripts.{when}["))
    return {rf"{folder}\{number:02}-{file.name}": file.data for number, file in enumerate(files, 1)}
