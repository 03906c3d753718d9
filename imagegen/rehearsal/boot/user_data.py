"""The user data of a rehearsed node, in the form of Cluster API's kubeadm bootstrap provider."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from typing import TYPE_CHECKING, Final

from imagegen.boot.pods import CONTAINERD_PIPE, CRI_DOCKERD_PIPE
from imagegen.boot.traces import own_scripts
from imagegen.catalog.facts import minor, paths
from imagegen.rehearsal.node.facts import is_within, read_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.settle.spec import Spec

# Before this version kubeadm reads arguments as a mapping, and from it on as a list.
_LIST_SINCE: Final = "v1beta4"
_DONE: Final = "/run/cluster-api/bootstrap-success.complete"
CONFIG: Final = "/run/kubeadm/kubeadm-join-config.yaml"
"""kubeadm's configuration, which user data writes."""
_SANDBOX_FLAG: Final = "pod-infra-container-image"
_DOCKER_PIPE: Final = "npipe:////./pipe/docker_engine"
# kubeadm 1.14 knew Docker's API only by this address.
_DOCKER_OF_1_14: Final = "tcp://localhost:2375"
_RANGES: Final = ("-ClusterCidr", "10.244.0.0/16", "-ServiceCidr", "10.96.0.0/12")


@dataclasses.dataclass(frozen=True)
class Join:
    """What a machine must know to join a cluster."""

    api_version: str
    """The version of kubeadm's configuration."""
    socket: str
    """Where kubeadm and kubelet find the container runtime."""
    endpoint: str = "cluster.example:6443"
    ca_cert_hash: str = f"sha256:{'0' * 64}"
    token: str = dataclasses.field(default_factory=lambda: f"{secrets.token_hex(3)}.{secrets.token_hex(8)}", repr=False)
    before: Sequence[str] = ()
    """The operator's scripts to call before kubeadm, by their paths."""
    after: Sequence[str] = ()
    """Those to call after it, with their arguments: first the image's own."""
    kubelet_arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Those that nodes of this image need beside the usual ones."""
    kubeconfigs: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The tokens of the image's services, by the paths of their kubeconfigs."""


@dataclasses.dataclass(frozen=True)
class UserData:
    """The text, and the secrets in it, which may reach no log."""

    text: bytes = dataclasses.field(repr=False)
    secrets: tuple[str, ...] = dataclasses.field(repr=False)


def sockets_of(spec: Spec) -> tuple[str, ...]:
    """Where user data can find the container runtime of an image."""
    docker = spec.config.runtime.docker
    if docker is None:
        return (CONTAINERD_PIPE,)
    if docker.cri_dockerd:
        return (CRI_DOCKERD_PIPE,)
    return (_DOCKER_OF_1_14 if minor(spec.config.kubernetes.version) == "1.14" else _DOCKER_PIPE,)


def join_of(spec: Spec) -> Join:
    """A join of a node from the image of this config."""
    config = spec.config
    own = minor(config.kubernetes.version)
    rows = read_facts("join")["api_versions"]
    [*_, version] = [name for name, row in rows.items() if is_within(own, row["first"], row["last"])]
    docker = config.runtime.docker
    sandbox = {_SANDBOX_FLAG: config.kubernetes.pause_image or ""} if docker and not docker.cri_dockerd else {}
    script = " ".join((rf"{config.kubernetes.install_path}\set-pod-network.ps1", *_RANGES))
    accounts = {
        **{"flannel": config.cni.plugin == "flannel", "kube-proxy": config.kube_proxy == "service"},
        **{"hybrid-overlay": config.cni.plugin == "ovn-kubernetes", "calico": spec.facts.calico_version is not None},
    }
    return Join(
        version,
        sockets_of(spec)[0],
        before=tuple(own_scripts(spec, "pre")),
        after=(*((script,) if spec.facts.cni_files else ()), *own_scripts(spec, "post")),
        kubelet_arguments=sandbox,
        kubeconfigs={
            rf"{paths()['etc_kubernetes']}\{name}.conf": secrets.token_hex(16) for name, on in accounts.items() if on
        },
    )


def make_user_data(join: Join) -> UserData:
    """Files, and commands before and after the join: one part, with a template for the node's name.

    One of its commands prints a secret, as people's scripts do: it may reach no log.
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
-   path: /etc/kubernetes/cloud.conf
    encoding: base64
    owner: root:root
    permissions: '0600'
    content: {_base64(f"key={key}")}
{"".join(_kubeconfig(path, token) for path, token in join.kubeconfigs.items())}runcmd:
  - "hostname"
  - "echo joining: {key}"
{_calls(join.before)}  - kubeadm join --config {CONFIG} --v 5 && echo success > {_DONE}
{_calls(join.after)}  - "sc config kubelet start= auto"
"""
    return UserData(text.encode(), (join.token, join.token.partition(".")[2], key, *join.kubeconfigs.values()))


def _kubeconfig(path: str, token: str) -> str:
    content = _base64(f"apiVersion: v1\nkind: Config\nusers:\n- name: node\n  user:\n    token: {token}\n")
    return f"-   path: {path}\n    encoding: base64\n    permissions: '0600'\n    content: {content}\n"


def _calls(scripts: Sequence[str]) -> str:
    """As docs/operator-guide.md shows it: a script that fails ends the user data."""
    return "".join(f"  - powershell -NoProfile -ExecutionPolicy Bypass -File {path} || exit 1\n" for path in scripts)


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
