"""What kubeadm reads from a cluster: its own settings, and kubelet's configuration."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers
from imagegen.rehearsal.node.client import ApiError
from imagegen.rehearsal.node.decode import GROUP, KubeadmError
from imagegen.rehearsal.node.facts import is_within, reached, read_facts
from imagegen.rehearsal.node.yaml_text import read_yaml_map

if TYPE_CHECKING:
    from imagegen.rehearsal.network.messages import Json
    from imagegen.rehearsal.node.client import ApiClient

SYSTEM_MAPS = "/api/v1/namespaces/kube-system/configmaps"


def read_cluster_settings(client: ApiClient, minor: str) -> dict[str, Any]:
    """The settings with which kubeadm made the cluster. `minor` is that of the kubeadm that reads them."""
    settings = _read_map(client.get(f"{SYSTEM_MAPS}/kubeadm-config"), "ClusterConfiguration")
    version, own = settings["kubernetesVersion"].lstrip("v"), numbers(minor)
    row = read_facts("kubeadm")["api_versions"].get(settings["apiVersion"].removeprefix(f"{GROUP}/"))
    if row is None or not is_within(minor, row["experimental"] or row["first"], row["last"]):
        raise KubeadmError(
            "unable to fetch the kubeadm-config ConfigMap: failed to decode cluster configuration data: no kind "
            f'"ClusterConfiguration" is registered for version "{settings["apiVersion"]}"'
        )
    oldest = f"{own[0]}.{own[1] - 1}.0"
    if numbers(version) < numbers(oldest):
        raise KubeadmError(
            "this version of kubeadm only supports deploying clusters with the control plane version >= "
            f"{oldest}. Current version: v{version}"
        )
    return settings


def read_kubelet_config(client: ApiClient, minor: str, version: str) -> dict[str, Any]:
    """The cluster's configuration of kubelets. `version` is the cluster's."""
    versioned = f"kubelet-config-{minor_of(version.lstrip('v'))}"
    names = ["kubelet-config"] if reached(minor, "config_map_without_version") else []
    names += [] if reached(minor, "config_map_only_without_version") else [versioned]
    for name in names[:-1]:
        with contextlib.suppress(ApiError):
            return _read_map(client.get(f"{SYSTEM_MAPS}/{name}"), "kubelet")
    return _read_map(client.get(f"{SYSTEM_MAPS}/{names[-1]}"), "kubelet")


def make_kubelet_config(shared: dict[str, Any], minor: str, drive: str, socket: str) -> Json:
    """kubelet's config.yaml on a node. `drive` is kubeadm's own. Without a `socket` a flag names it."""
    config = {**shared}
    if reached(minor, "paths_get_a_drive"):
        # Its own drive, while its other paths are on the drive of the current folder.
        config["resolvConf"] = ""
        config["staticPodPath"] = _with_drive(config.get("staticPodPath", ""), drive)
        x509 = config.get("authentication", {}).get("x509", {})
        ca_file = _with_drive(x509.get("clientCAFile", ""), drive)
        config["authentication"] = {**config.get("authentication", {}), "x509": {**x509, "clientCAFile": ca_file}}
    if socket:
        config["containerRuntimeEndpoint"] = socket
    return config


def _with_drive(path: str, drive: str) -> str:
    return (drive + path).replace("/", "\\") if path.startswith("/") else path


def _read_map(config_map: Json, key: str) -> dict[str, Any]:
    try:
        return read_yaml_map(config_map["data"][key].encode(), key)
    except (KeyError, ConfigError, ValueError) as error:
        raise KubeadmError(f"unexpected error when reading ConfigMap: {key}: {error}") from error
