"""The values for the network of pods and for kube-proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.catalog.facts import JsonObject, catalogue_text, is_overlay, numbers, table
from imagegen.settle.facts import CniArchive, CniFile, HnsValue
from imagegen.settle.values import CatalogueValue, fact, find_origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.config.model import ImageConfig


def settle_network(config: ImageConfig) -> Iterator[CatalogueValue]:
    cni, known = config.cni, table("cni")
    plugin = known["plugins"].get(cni.plugin) or known["plugins"]["none"]
    origin = find_origin("cni", cni.plugin, plugin["source"])
    yield CatalogueValue(("cni", "version"), plugin["newest"], origin)
    yield CatalogueValue(("cni", "mode"), plugin.get("default_mode"), origin)
    mode = cni.mode or plugin.get("default_mode")
    if "vni" in plugin["takes"] and is_overlay(cni.plugin, mode):
        vxlan = known["vxlan"]
        yield CatalogueValue(("cni", "vni"), vxlan["vni_at_least"], find_origin("cni", "vxlan", vxlan["source"]))
    rows = [*plugin.get("files", ()), *(known["kube_proxy"]["files"] if config.kube_proxy == "service" else ())]
    # Two of them may start services.
    files = tuple(dict.fromkeys(_cni_file(row) for row in rows))
    yield fact("cni_files", files, origin, "The files of the network plugin that a node fills in when it joins.")
    archive = plugin.get("archive")
    url = archive and archive["url"].format(version=cni.version or plugin["newest"])
    found = archive and CniArchive(url, tuple(archive["programs"]))
    yield fact("cni_archive", found, origin, "The archive of the network plugin, if it has one of its own.")
    values = tuple(HnsValue(name, data) for name, data in plugin.get("hns_values", {}).items())
    description = "The values of Windows' network service (HNS) that the network plugin needs."
    yield fact("hns_values", values, origin, description)
    named = plugin.get("programs", {})
    programs = tuple(named.get(mode or "any", ()))
    description = "The programs of containernetworking/plugins that the network plugin needs."
    yield fact("cni_programs", programs, origin, description)
    row = known["cni_plugins"]
    version = (cni.version or plugin["newest"]) if plugin.get("is_cni_plugins") else row["version"]
    origin = find_origin("cni", "cni_plugins", row["source"])
    yield fact("cni_plugins", version if programs else None, origin, "The version of containernetworking/plugins.")
    row = known["flannel_plugin"]
    version = row["version"] if cni.plugin == "flannel" else None
    description = "The version of flannel's network plugin."
    yield fact("flannel_plugin", version, find_origin("cni", "flannel_plugin", row["source"]), description)
    name = plugin.get("network", {}).get(mode or "any")
    name = name and name.format(vni=cni.vni or known["vxlan"]["vni_at_least"])
    description = "The name of the pod network in Windows' network service (HNS)."
    yield fact("pod_network", name, find_origin("cni", cni.plugin, plugin["source"]), description)
    api = known["api_versions"]
    origin = find_origin("cni", "api_versions", api["source"])
    description = "The version of Windows' network service (HNS) for which network plugins write."
    version = api["containerd" if config.runtime.containerd else "docker"] if files else None
    yield fact("cni_api_version", version, origin, description)


def settle_kube_proxy(config: ImageConfig) -> Iterator[CatalogueValue]:
    """Nothing but for a service: the cluster configures any other."""
    cni, plugins = config.cni, table("cni")["plugins"]
    plugin = plugins.get(cni.plugin) or plugins["none"]
    mode = cni.mode or plugin.get("default_mode")
    rows = table("kubernetes")["kube_proxy_gates"]
    gates = [row for row in rows if numbers(config.kubernetes.version) < numbers(row["on_since"])]
    asked = config.kube_proxy == "service"
    origin = find_origin("kubernetes", "kube_proxy_gates", rows[0]["source"])
    description = "The feature gates that kube-proxy of this minor needs on Windows."
    yield fact("kube_proxy_gates", tuple(row["gate"] for row in gates) if asked else (), origin, description)
    origin = find_origin("cni", cni.plugin, plugin["source"])
    description = "Whether kube-proxy needs an address of its own in the pod network, because that is an overlay."
    yield fact("has_source_address", (asked and is_overlay(cni.plugin, mode)) or None, origin, description)


def _cni_file(row: JsonObject) -> CniFile:
    """A file of a plugin. If only one cloud has the plugin, the file is beside the cloud's tables."""
    text = row.get("text")
    return CniFile(row["name"], row["folder"], text and catalogue_text(text))
