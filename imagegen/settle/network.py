"""The values for the network of pods and for kube-proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.catalog.facts import JsonObject, catalogue_text, is_overlay, numbers, table
from imagegen.settle.facts import CniArchive, CniFile, HnsValue
from imagegen.settle.values import CatalogueValue, fact, find_origin
from imagegen.steps.image_name import ImageName

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
    services = known["kube_proxy"]["files"] if config.kube_proxy == "service" else ()
    rows = [*plugin.get("files", ()), *services, *(known["calico"]["files"] if cni.policy else ())]
    # Several of them may start services.
    files = tuple(dict.fromkeys(_cni_file(row) for row in rows if mode in row.get("modes", (mode,))))
    yield fact("cni_files", files, origin)
    archive = plugin.get("archive")
    found = archive and CniArchive(archive["product"], tuple(archive["programs"]))
    yield fact("cni_archive", found, origin)
    values = tuple(HnsValue(name, data) for name, data in plugin.get("hns_values", {}).items())
    yield fact("hns_values", values, origin)
    named = plugin.get("programs", {})
    programs = tuple(named.get(mode or "any", ()))
    yield fact("cni_programs", programs, origin)
    row = known["cni_plugins"]
    version = (cni.version or plugin["newest"]) if plugin.get("is_cni_plugins") else row["version"]
    origin = find_origin("cni", "cni_plugins", row["source"])
    yield fact("cni_plugins", version if programs else None, origin)
    yield from _settle_calico(config, mode)
    row = known["wincni"]
    commit = row["commit"] if cni.plugin == "wincni" else None
    yield fact("wincni", commit, find_origin("cni", "wincni", row["source"]))
    row = known["flannel_plugin"]
    version = row["version"] if cni.plugin == "flannel" else None
    yield fact("flannel_plugin", version, find_origin("cni", "flannel_plugin", row["source"]))
    yield _overlay_port(config, mode)
    name = plugin.get("network", {}).get(mode or "any")
    name = name and name.format(vni=cni.vni or known["vxlan"]["vni_at_least"])
    yield fact("pod_network", name, find_origin("cni", cni.plugin, plugin["source"]))
    api = known["api_versions"]
    origin = find_origin("cni", "api_versions", api["source"])
    version = api["containerd" if config.runtime.containerd else "docker"] if files else None
    yield fact("cni_api_version", version, origin)


def _overlay_port(config: ImageConfig, mode: str | None) -> CatalogueValue:
    """The UDP port of an overlay network, which the config may name."""
    row = table("cni")["vxlan"]
    port = (config.cni.port or row["port"]) if is_overlay(config.cni.plugin, mode) else None
    return fact("overlay_port", port, find_origin("cni", "vxlan", row["source"]))


def _settle_calico(config: ImageConfig, mode: str | None) -> Iterator[CatalogueValue]:
    """In HostProcess pods the image has Calico's images only."""
    cni, known = config.cni, table("cni")
    newest, row = known["plugins"]["calico"]["newest"], known["calico"]
    origin = find_origin("cni", "calico", row["source"])
    if cni.policy:
        yield CatalogueValue(("cni", "policy_version"), newest, origin)
    version, images = cni.version or newest, []
    is_plugin = cni.plugin == "calico"
    if is_plugin and mode == "hostprocess":
        registries = [host for since, host in row["images"].items() if numbers(version) >= numbers(since)]
        # A rule refuses a version without images.
        images = [f"{host}/{name}:v{version}" for host in registries[-1:] for name in row["names"]]
    listed = [*config.windows.container_images, *config.images, *(tarball.name for tarball in config.image_tarballs)]
    known_images = {str(ImageName.parse(name)) for name in listed}
    yield fact("cni_images", [name for name in images if str(ImageName.parse(name)) not in known_images], origin)
    backend = "vxlan" if is_plugin and mode == "vxlan" else "none" if cni.policy else None
    version = cni.policy_version or newest if cni.policy else version
    yield fact("calico_version", version if backend else None, origin)
    yield fact("calico_backend", backend, origin)


def settle_kube_proxy(config: ImageConfig) -> Iterator[CatalogueValue]:
    """Nothing but for a service: the cluster configures any other."""
    cni, plugins = config.cni, table("cni")["plugins"]
    plugin = plugins.get(cni.plugin) or plugins["none"]
    mode = cni.mode or plugin.get("default_mode")
    rows = table("kubernetes")["kube_proxy_gates"]
    gates = [row for row in rows if numbers(config.kubernetes.version) < numbers(row["on_since"])]
    asked = config.kube_proxy == "service"
    origin = find_origin("kubernetes", "kube_proxy_gates", rows[0]["source"])
    yield fact("kube_proxy_gates", tuple(row["gate"] for row in gates) if asked else (), origin)
    origin = find_origin("cni", cni.plugin, plugin["source"])
    yield fact("has_source_address", (asked and is_overlay(cni.plugin, mode)) or None, origin)
    yield fact("asks_source_address", asked and cni.plugin == "none", origin)


def settle_link_local_routes(provider: str) -> CatalogueValue:
    """The addresses of the cloud that a network of pods hides."""
    row = table("machines").get("link_local_routes", {}).get(provider)
    origin = find_origin("machines", provider, row["source"] if row else None)
    return fact("link_local_routes", tuple(row["addresses"]) if row else (), origin)


def _cni_file(row: JsonObject) -> CniFile:
    """A file of a plugin. If only one cloud has the plugin, the file is beside the cloud's tables."""
    text = row.get("text")
    return CniFile(row["name"], row["folder"], text and catalogue_text(text))
