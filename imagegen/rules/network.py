"""The pods' network on Windows and on each cloud, proxies, and what names and networks clouds take. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of, table
from imagegen.rules.rule import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imagegen.catalog.facts import JsonObject
    from imagegen.documents.yaml import YamlPath
    from imagegen.rules.rule import Asked

# Where a machine asks its own cloud: metadata on both, and on Azure what provisions it.
_ASKED_DIRECTLY: Final = {"aws": ("169.254.169.254",), "azure": ("169.254.169.254", "168.63.129.16")}


def _plugin(asked: Asked) -> JsonObject:
    row: JsonObject = table("cni")["plugins"][asked.config.cni.plugin]
    return row


def _is_overlay(asked: Asked) -> bool:
    row = _plugin(asked)
    return bool(row["overlay"] or (asked.config.cni.mode or row["default_mode"]) in row["overlay_modes"])


@rule("cni-key-taken", ERROR, "Each key of cni must be one that the plugin uses")
def cni_key_taken(asked: Asked) -> Iterator[Finding]:
    row = _plugin(asked)
    plugins = table("cni")["plugins"]
    for key, value in asked.config.cni:
        if key == "plugin" or value is None or key in row["takes"]:
            continue
        takers = [name for name, other in plugins.items() if key in other["takes"]]
        message = f"without a plugin it does nothing: {row['title']}"
        if asked.config.cni.plugin != "none":
            message = f"{row['title']} takes no {key}"
        yield Finding(("cni", key), message, f"leave it out, or choose one of {', '.join(takers)}")


@rule("cni-overlay-key", ERROR, "Keys of an overlay must be used only with an overlay network")
def cni_overlay_key(asked: Asked) -> Iterator[Finding]:
    row = _plugin(asked)
    for key, value in asked.config.cni:
        if value is not None and key in row.get("overlay_only", ()) and not _is_overlay(asked):
            message = f"{row['title']} in mode {asked.config.cni.mode} makes no overlay, which this is of"
            yield Finding(("cni", key), message, f"leave it out, or choose mode {' or '.join(row['overlay_modes'])}")


@rule(
    "cni-version-named",
    ERROR,
    "cni.version is required where the catalogue knows no version of the plugin",
    why="imagegen cannot choose a version of it",
)
def cni_version_named(asked: Asked) -> Iterator[Finding]:
    row = _plugin(asked)
    if asked.config.cni.version is None and row["newest"] is None and "version" in row["takes"]:
        message = f"the catalogue knows no version of {row['title']}"
        yield Finding(("cni", "plugin"), message, "name one under cni.version")


@rule("cni-windows-refused", ERROR, "The CNI plugin must run on the Windows release")
def cni_windows_refused(asked: Asked) -> Iterator[Finding]:
    yield from _verdict(asked, "refused")


@rule("cni-windows-untested", WARNING, "The CNI plugin should be tested on the Windows release")
def cni_windows_untested(asked: Asked) -> Iterator[Finding]:
    yield from _verdict(asked, "untested")


def _verdict(asked: Asked, verdict: str) -> Iterator[Finding]:
    release = asked.config.windows.release
    known_release, plugin = table("windows")["releases"].get(release), _plugin(asked)
    if known_release is None or asked.config.cni.plugin == "none":
        return
    nothing = f"the catalogue does not say whether {plugin['title']} runs on {known_release['title']}"
    row = plugin["windows"].get(release, {"verdict": "untested", "reason": nothing})
    if row["verdict"] == verdict:
        tested = [
            name
            for name, other in table("cni")["plugins"].items()
            if name != "none" and other["windows"].get(release, {}).get("verdict") == "tested"
        ]
        hint = f"tested on it: {', '.join(tested)}" if tested else "choose another release"
        yield Finding(("cni", "plugin"), row["reason"], hint)


@rule("overlay-on-release", ERROR, "Overlay networks must work on the Windows release")
def overlay_on_release(asked: Asked) -> Iterator[Finding]:
    windows = table("windows")
    row = {**windows["refused"], **windows["releases"]}.get(asked.config.windows.release, {})
    if row.get("overlay") == "broken" and _is_overlay(asked):
        message = f"an overlay network cannot work on it: {row['reason']}"
        yield Finding(("cni", "plugin"), message, "choose another release, or a network without overlay")


@rule("overlay-vni", ERROR, "The overlay's VNI must be one that Windows supports")
def overlay_vni(asked: Asked) -> Iterator[Finding]:
    vxlan, vni = table("cni")["vxlan"], asked.config.cni.vni
    if vni is not None and _is_overlay(asked) and vni < vxlan["vni_at_least"]:
        yield Finding(("cni", "vni"), vxlan["reason"], f"choose {vxlan['vni_at_least']} or more")


@rule("overlay-port", ERROR, "The overlay's UDP port must be one that Windows supports")
def overlay_port(asked: Asked) -> Iterator[Finding]:
    vxlan, port = table("cni")["vxlan"], asked.config.cni.port
    # A plugin whose VNI is its own has an overlay of its own, in which the port is free.
    if port is not None and _is_overlay(asked) and "vni" in _plugin(asked)["takes"] and port != vxlan["port"]:
        yield Finding(("cni", "port"), vxlan["reason"], f"choose {vxlan['port']}, or leave it out")


@rule("overlay-mtu-on-azure", ERROR, "The overlay's packets must fit into those of Azure's network")
def overlay_mtu_on_azure(asked: Asked) -> Iterator[Finding]:
    limit, mtu = table("cni")["azure_mtu"], asked.config.cni.mtu
    if mtu is not None and asked.config.targets.azure and _is_overlay(asked) and mtu > limit["at_most"]:
        yield Finding(("cni", "mtu"), limit["reason"], f"choose {limit['at_most']} or less")


@rule("host-name-length", ERROR, "The longest host name must be short enough for Windows and the cloud")
def host_name_length(asked: Asked) -> Iterator[Finding]:
    names, path = asked.config.host_names, ("host_names", "longest")
    netbios, azure, label = limit_of("computer_name"), limit_of("azure_computer_name"), limit_of("host_name")
    if names.longest is None:
        return
    length = len(names.longest)
    if length > label["max"]:
        message = f"it has {length} characters, and a host name has at most {label['max']}"
        yield Finding(path, message, "shorten the names of cluster and machines")
    elif asked.config.targets.azure and length > azure["max"]:
        message = f"it has {length} characters: {azure['reason']}"
        yield Finding(path, message, "shorten the names of cluster and machines")
    elif names.netbios_compatible and length > netbios["max"]:
        message = f"it has {length} characters: {netbios['reason']}, and two machines may get one name"
        yield Finding(path, message, "shorten the names, or say netbios_compatible: false")


@rule("host-name-form", ERROR, "The longest host name must be valid on Windows")
def host_name_form(asked: Asked) -> Iterator[Finding]:
    longest, limit = asked.config.host_names.longest, limit_of("host_name")
    if longest is not None and not re.search(limit["pattern"], longest):
        message = f"Windows takes no {longest}: {limit['reason']}"
        yield Finding(("host_names", "longest"), message, "choose such a name, as win-md-0-x7k2p")


@rule("pool-name-scale-set", ERROR, "The pool's name must leave room for the number that Azure appends")
def pool_name_scale_set(asked: Asked) -> Iterator[Finding]:
    pool, limit = asked.config.host_names.pool, limit_of("scale_set_prefix")
    if pool is not None and asked.config.targets.azure and len(pool) > limit["max"]:
        message = f"{pool} has {len(pool)} characters: {limit['reason']}"
        yield Finding(("host_names", "pool"), message, f"choose a name of at most {limit['max']}")


@rule("pool-name-aks", WARNING, "The pool's name should be valid in AKS")
def pool_name_aks(asked: Asked) -> Iterator[Finding]:
    pool, limit = asked.config.host_names.pool, limit_of("aks_windows_pool")
    if pool is None or not asked.config.targets.azure:
        return
    if len(pool) > limit["max"] or not re.search(limit["pattern"], pool):
        hint = "choose such a name where the same name must do in AKS"
        yield Finding(("host_names", "pool"), f"AKS would refuse {pool}: {limit['reason']}", hint)


@rule("pool-name-on-azure", ERROR, "host_names.pool must be used only for images on Azure")
def pool_name_on_azure(asked: Asked) -> Iterator[Finding]:
    if asked.config.host_names.pool is not None and not asked.config.targets.azure:
        message = "only Azure limits pools' names, and the image is not built for it: nothing is checked"
        yield Finding(("host_names", "pool"), message, "leave it out")


@rule("proxy-hides-metadata", ERROR, "The cloud's own addresses must be reached without the proxy")
def proxy_hides_metadata(asked: Asked) -> Iterator[Finding]:
    """The clouds answer plain http alone, so a proxy for https stands in nobody's way."""
    proxy = asked.config.proxy
    if proxy is None or proxy.http is None:
        return
    targets = asked.config.targets.named()
    addresses = dict.fromkeys(address for target in targets for address in _ASKED_DIRECTLY[target])
    # Python, in which cloudbase-init asks, knows it only alone.
    if proxy.no_proxy == ["*"]:
        return
    missing = [address for address in _without(addresses, proxy.no_proxy) if address not in proxy.no_proxy]
    if missing:
        message = f"a machine would ask the proxy for {', '.join(missing)}, where only its own cloud can answer"
        yield Finding(("proxy", "no_proxy"), message, f"add {', '.join(missing)} to no_proxy")


@rule("proxy-over-tls", WARNING, "proxy.https should be an http:// address")
def proxy_over_tls(asked: Asked) -> Iterator[Finding]:
    proxy = asked.config.proxy
    if proxy is not None and proxy.https is not None and proxy.for_downloads is None:
        message = f"Windows PowerShell cannot use {proxy.https} over TLS: the builder downloads without a proxy"
        yield Finding(("proxy", "https"), message, "write http:// if the proxy listens without TLS too")


def _without(addresses: Iterable[str], no_proxy: Sequence[str]) -> list[str]:
    """The addresses that lie in none of the networks of no_proxy."""
    written = [item for item in no_proxy if "/" in item]
    if not written:
        return list(addresses)
    networks = [ipaddress.ip_network(item, strict=False) for item in written]
    return [address for address in addresses if not any(ipaddress.ip_address(address) in one for one in networks)]


@rule(
    "network-form",
    ERROR,
    "Each of allowed_cidrs must be a network",
    why="an address that is no network is usually a typing error",
)
def network_form(asked: Asked) -> Iterator[Finding]:
    for target, settings in asked.config.targets.named().items():
        for index, cidr in enumerate(settings.network.allowed_cidrs):
            path: YamlPath = ("targets", target, "network", "allowed_cidrs", index)
            if wrong := _wrong_network(cidr):
                yield Finding(path, f"{cidr} is no network: {wrong[0]}", wrong[1])


def _wrong_network(cidr: str) -> tuple[str, ...]:
    """Why it is no network and what may be meant; nothing where it is one."""
    try:
        network = ipaddress.IPv4Network(cidr, strict=False)
    except ValueError:
        return "an address has four numbers up to 255, a prefix one up to 32", "write it as 198.51.100.0/24"
    if str(network) != cidr:
        return f"an address within {network}", f"write {network}, or {cidr.partition('/')[0]}/32 for one machine"
    return ()
