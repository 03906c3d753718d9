"""The Kubernetes objects of a cluster: what it hands to a joining node, and what it keeps of one."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from imagegen.catalog.facts import minor, numbers
from imagegen.rehearsal.node.yaml_text import yaml_text

if TYPE_CHECKING:
    from imagegen.rehearsal.network.messages import Json

# kubeadm of these minors wrote another version of its configuration into the cluster.
_CONFIG_VERSIONS = {"1.14": "v1beta1", "1.15": "v1beta2", "1.22": "v1beta3", "1.31": "v1beta4"}
# From this minor on, the name of the ConfigMap has no version.
_ONE_KUBELET_CONFIG = (1, 24)
# As kubeadm init writes it on a Linux control plane, without the fields that are zero.
_KUBELET_CONFIG: Mapping[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"cacheTTL": "0s", "enabled": True},
        "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
    },
    "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s"}},
    "cgroupDriver": "systemd",
    "clusterDNS": ["10.96.0.10"],
    "clusterDomain": "cluster.local",
    "healthzBindAddress": "127.0.0.1",
    "healthzPort": 10248,
    "rotateCertificates": True,
    "staticPodPath": "/etc/kubernetes/manifests",
}


@dataclasses.dataclass
class Node:
    """A node as the cluster knows it. `taints` as kubelet's flag writes them: `key=value:effect`."""

    name: str
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    taints: tuple[str, ...] = ()
    provider_id: str = ""
    kubelet_version: str = ""
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    addresses: dict[str, str] = dataclasses.field(default_factory=dict)
    """The addresses by their type."""
    ready: bool = False
    pod_cidr: str = ""
    """The range of its pods, which the controller manager gave it."""
    reports: int = 0
    """How often its kubelet reported its state, the registration included."""

    @classmethod
    def of_json(cls, body: Json) -> Node:
        """The node that a kubelet wants to register."""
        meta, spec = body["metadata"], body.get("spec", {})
        node = cls(
            meta["name"],
            dict(meta.get("labels", {})),
            tuple(_taint_text(taint) for taint in spec.get("taints", [])),
            spec.get("providerID", ""),
            annotations=dict(meta.get("annotations", {})),
        )
        node.report(body.get("status", {}))
        return node

    def report(self, status: Json) -> None:
        """Take over the state that a kubelet reports."""
        self.reports += 1
        self.kubelet_version = status.get("nodeInfo", {}).get("kubeletVersion", self.kubelet_version)
        self.addresses |= {item["type"]: item["address"] for item in status.get("addresses", [])}
        ready = [item["status"] == "True" for item in status.get("conditions", []) if item["type"] == "Ready"]
        self.ready = ready[0] if ready else self.ready

    def json(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.labels, "annotations": self.annotations},
            "spec": {
                "providerID": self.provider_id,
                "taints": [parse_taint(taint) for taint in self.taints],
                **({"podCIDR": self.pod_cidr, "podCIDRs": [self.pod_cidr]} if self.pod_cidr else {}),
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True" if self.ready else "False"}],
                "nodeInfo": {"kubeletVersion": self.kubelet_version},
                "addresses": [{"type": kind, "address": address} for kind, address in self.addresses.items()],
            },
        }


def parse_taint(text: str) -> dict[str, str]:
    """A taint of kubelet's flag as the API writes it."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _taint_text(taint: Mapping[str, str]) -> str:
    value = taint.get("value", "")
    return f"{taint['key']}{f'={value}' if value else ''}:{taint['effect']}"


def config_map(namespace: str, name: str, data: Mapping[str, str]) -> Json:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def cluster_info(server: str, authority: bytes, token: str) -> Json:
    """The ConfigMap that anybody may read, signed with the bootstrap token."""
    cluster = {"certificate-authority-data": base64.b64encode(authority).decode(), "server": server}
    kubeconfig = yaml_text(
        {
            "apiVersion": "v1",
            "clusters": [{"cluster": cluster, "name": ""}],
            "contexts": None,
            "current-context": "",
            "kind": "Config",
            "users": None,
        }
    )
    data = {"kubeconfig": kubeconfig, f"jws-kubeconfig-{token.partition('.')[0]}": sign_detached(kubeconfig, token)}
    return config_map("kube-public", "cluster-info", data)


def sign_detached(content: str, token: str) -> str:
    """The JWS of a content without the content, as the cluster's signer of cluster-info makes it."""
    identity, _, secret = token.partition(".")
    header = _base64url(json.dumps({"alg": "HS256", "kid": identity}, separators=(",", ":")).encode())
    signed = f"{header}.{_base64url(content.encode())}".encode()
    return f"{header}..{_base64url(hmac.digest(secret.encode(), signed, hashlib.sha256))}"


def config_version(version: str) -> str:
    """The newest version of its configuration that kubeadm reads."""
    known = [config for since, config in _CONFIG_VERSIONS.items() if numbers(since) <= numbers(minor(version))]
    return known[-1]


def kubeadm_config(version: str, endpoint: str) -> Json:
    configuration = {
        "apiVersion": f"kubeadm.k8s.io/{config_version(version)}",
        "clusterName": "kubernetes",
        "controlPlaneEndpoint": endpoint,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{version}",
    }
    return config_map("kube-system", "kubeadm-config", {"ClusterConfiguration": yaml_text(configuration)})


def kubelet_config(version: str) -> Json:
    current = numbers(minor(version)) >= _ONE_KUBELET_CONFIG
    name = "kubelet-config" if current else f"kubelet-config-{minor(version)}"
    return config_map("kube-system", name, {"kubelet": yaml_text(_KUBELET_CONFIG)})


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
