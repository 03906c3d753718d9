"""The pod network that samples are for: the plugin of the image, or the one that the cluster installs. Pure."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import is_overlay, table

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec


@dataclasses.dataclass(frozen=True)
class Network:
    """A pod network."""

    plugin: str
    """`none` if imagegen does not know it."""
    mode: str | None
    name: str
    """Its name in Windows' network service (HNS), if kube-proxy can use it. Otherwise empty."""
    is_on_image: bool
    """Whether the plugin is on the image. Otherwise the cluster installs it."""
    overlay: bool
    vni: int | None
    mtu: int | None
    subnet_file: str
    """The file of a node with its range of pods, without the drive. Empty if kube-proxy needs none."""
    subnet_pattern: str
    """The regular expression that finds the range in this file."""
    routes: str
    """Who sets the routes between nodes: `flannel` or `cloud`. Empty if there are none to set."""


def known_networks() -> list[str]:
    """The plugins that a cluster can install, as --network names them."""
    return list(table("samples")["networks"])


def find_network(spec: Spec, asked: str | None) -> Network:
    """The network of an image. `asked` is the plugin that the cluster installs."""
    cni, known = spec.config.cni, table("samples")
    on_image = cni.plugin != "none"
    if asked and on_image:
        raise ConfigError(
            f"--network {asked} has no effect: the image has the network plugin {cni.plugin}",
            hint="leave --network out, or write cni.plugin: none",
        )
    row = known["networks"].get(asked or cni.plugin, {"plugin": cni.plugin, "mode": cni.mode, "name": ""})
    plugin, mode = row["plugin"], row["mode"]
    overlay = is_overlay(plugin, mode)
    range_ = known["ranges"].get(plugin, {}) if overlay else {}
    # Calico's image of kube-proxy finds the range itself.
    is_usable = not overlay or bool(range_) or plugin == "calico"
    return Network(
        plugin=plugin,
        mode=mode,
        name=(spec.facts.pod_network or row["name"]) if is_usable else "",
        is_on_image=on_image,
        overlay=overlay,
        vni=(cni.vni or table("cni")["vxlan"]["vni_at_least"]) if overlay else None,
        mtu=cni.mtu,
        subnet_file=range_.get("file", ""),
        subnet_pattern=range_.get("pattern", ""),
        routes={"host-gw": "flannel"}.get(mode or "", "cloud" if plugin in ("win-bridge", "wincni") else ""),
    )


def net_conf(network: Network, cluster_cidr: str) -> str:
    """flannel's configuration, which all nodes of a cluster need alike."""
    vxlan = {"VNI": network.vni, "Port": table("cni")["vxlan"]["port"]} if network.overlay else {}
    mtu = {"MTU": network.mtu} if network.mtu else {}
    return json.dumps({"Network": cluster_cidr, "Backend": {"Type": network.mode, **vxlan, **mtu}})
