"""The user data of a rehearsed node, in the form of Cluster API's kubeadm bootstrap provider."""

from __future__ import annotations

import base64
import dataclasses
import re
import secrets
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.node.api_server import POD_RANGE, SERVICE_RANGE
from imagegen.rehearsal.node.runtimes import CONTAINERD_PIPE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Before this version kubeadm reads arguments as a mapping, and from it on as a list.
_LIST_SINCE: Final = "v1beta4"
# kubeadm writes its files while the service kubelet, which was started with the machine, looks for them.
_BEFORE_JOIN_S: Final = 4
_DONE: Final = "/run/cluster-api/bootstrap-success.complete"
CONFIG: Final = "/run/kubeadm/kubeadm-join-config.yaml"
"""kubeadm's configuration, which user data writes."""


@dataclasses.dataclass(frozen=True)
class Join:
    """What a machine must know to join a cluster."""

    endpoint: str
    ca_cert_hash: str
    token: str = dataclasses.field(repr=False)
    api_version: str
    """The version of kubeadm's configuration."""
    before: Sequence[str] = ()
    """The operator's scripts to call before kubeadm, by their paths."""
    after: Sequence[str] = ()
    """Those to call after it."""
    socket: str = CONTAINERD_PIPE
    """Where kubeadm and kubelet find the container runtime."""
    kubelet_arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Those that nodes of this image need beside the usual ones."""
    sets_network: str = ""
    """The script that gives the node its part of the pod network. Empty if the image has none."""
    network: str = ""
    """The network of pods, if the image does not know it."""
    source_vip: str = ""
    """kube-proxy's own address in that network, if it needs one."""
    kubeconfigs: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The kubeconfigs of the image's services, by their paths."""
    all_signed: bool = False
    """Whether the machine runs only signed scripts: then user data has its commands on command lines."""


@dataclasses.dataclass(frozen=True)
class UserData:
    """The text, and the secrets in it, which may reach no log."""

    text: bytes = dataclasses.field(repr=False)
    secrets: tuple[str, ...] = dataclasses.field(repr=False)


def make_user_data(join: Join) -> UserData:
    """Files, and commands before and after the join: one part, with a template for the node's name.

    One of its scripts prints a secret, as people's scripts do: it may reach no log.
    """
    key = secrets.token_hex(16)
    text = f"""## template: jinja
#cloud-config

write_files:
-   path: {CONFIG}
    owner: root:root
    permissions: '0640'
    content: |
{_indent(_join_configuration(join), 6)}
-   path: /run/cluster-api/placeholder
    owner: root:root
    permissions: '0640'
    content: "keeps the folder"
{"" if join.all_signed else _before_join(key)}-   path: /etc/kubernetes/cloud.conf
    encoding: base64
    owner: root:root
    permissions: '0600'
    content: {_base64(f"key={key}")}
{"".join(_kubeconfig(path, text) for path, text in join.kubeconfigs.items())}runcmd:
  - "hostname"
  - {_call_before_join(key) if join.all_signed else '"powershell /run/cluster-api/before-join.ps1"'}
{_calls(join.before)}  - kubeadm join --config {CONFIG} --v 5 && echo success > {_DONE}
{_after_join(join)}  - "powershell -Command \\"Set-Service kubelet -StartupType Automatic\\""
"""
    tokens = re.findall(r"(?m)^ *token: (\S+)", "".join(join.kubeconfigs.values()))
    return UserData(text.encode(), (join.token, join.token.partition(".")[2], key, *tokens))


def _before_join(key: str) -> str:
    return f"""-   path: /run/cluster-api/before-join.ps1
    permissions: '0744'
    content: |
      $ErrorActionPreference = 'Stop'
      Write-Output "joining: $env:COMPUTERNAME {key}"
      Start-Sleep -Seconds {_BEFORE_JOIN_S}
"""


def _call_before_join(key: str) -> str:
    """The same on a command line, which needs no signature."""
    return f'"powershell -Command \\"Write-Output \'joining: {key}\'; Start-Sleep -Seconds {_BEFORE_JOIN_S}\\""'


def _kubeconfig(path: str, text: str) -> str:
    content = _base64(text)
    return f"-   path: {path}\n    encoding: base64\n    permissions: '0600'\n    content: {content}\n"


def _calls(scripts: Sequence[str]) -> str:
    """As docs/operator-guide.md shows it: a script that fails ends the user data."""
    return "".join(f"  - powershell -NoProfile -ExecutionPolicy Bypass -File {path} || exit 1\n" for path in scripts)


def _after_join(join: Join) -> str:
    """As docs/operator-guide.md shows it: first the network of pods, then the operator's scripts."""
    call = " ".join(network_call(join.sets_network, join.network, join.source_vip))
    network = f"  - powershell -NoProfile -ExecutionPolicy Bypass -File {call} || exit 1\n" if join.sets_network else ""
    return network + _calls(join.after)


def network_call(script: str, network: str, source_vip: str = "") -> tuple[str, ...]:
    """The script that gives a node its part of the pod network, with its arguments. The last two may be empty."""
    name = ("-NetworkName", network) if network else ()
    address = ("-SourceVip", source_vip) if source_vip else ()
    return (script, "-ClusterCidr", POD_RANGE, "-ServiceCidr", SERVICE_RANGE, *name, *address)


def _join_configuration(join: Join) -> str:
    usual = {"cloud-provider": "external", "node-labels": "imagegen.example/rehearsed=true"}
    arguments = {**usual, **join.kubelet_arguments}
    if join.api_version >= _LIST_SINCE:
        lines = [f"    - name: {name}\n      value: {value}" for name, value in arguments.items()]
    else:
        lines = [f"      {name}: {value}" for name, value in arguments.items()]
    extra = "\n".join(lines)
    return f"""---
apiVersion: kubeadm.k8s.io/{join.api_version}
discovery:
  bootstrapToken:
    apiServerEndpoint: {join.endpoint}
    caCertHashes:
    - {join.ca_cert_hash}
    token: {join.token}
kind: JoinConfiguration
nodeRegistration:
  criSocket: {join.socket}
  kubeletExtraArgs:
{extra}
  name: '{{{{ ds.meta_data["local_hostname"] }}}}'
  taints: []"""


def _indent(text: str, columns: int) -> str:
    return "\n".join(" " * columns + line for line in text.splitlines())


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
