"""The rules for the network of pods, for host names and for proxies. Pure."""

import ipaddress
from collections.abc import Iterator

from imagegen.catalog.facts import JsonObject, is_overlay, limit_of, table
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule


def _plugin(given: RuleInput) -> JsonObject:
    row: JsonObject = table("cni")["plugins"][given.config.cni.plugin]
    return row


def _is_overlay(given: RuleInput) -> bool:
    return is_overlay(given.config.cni.plugin, given.config.cni.mode)


@rule(
    "calico-and-kube-proxy",
    ERROR,
    "With Calico, kube-proxy must not be a service of the image",
    why="in Calico's overlay it needs the address of an endpoint that Calico makes only after the node has joined",
)
def calico_and_kube_proxy(given: RuleInput) -> Iterator[Finding]:
    cni = given.config.cni
    if cni.plugin == "calico" and given.config.kube_proxy == "service":
        others = " (wins or none on nodes without HostProcess containers)" if cni.mode == "vxlan" else ""
        yield Finding(
            ("kube_proxy",),
            "the image does not know the address that Calico's overlay gives to the node",
            f"write kube_proxy: hostprocess{others}, and start kube-proxy from the cluster",
        )


kube_proxy_health_without_kube_proxy = simple_rule(
    "kube-proxy-health-without-kube-proxy",
    ERROR,
    "kube_proxy_health_checks requires kube-proxy",
    lambda given: given.config.kube_proxy == "none" and given.config.kube_proxy_health_checks,
    Finding(
        ("kube_proxy_health_checks",),
        "nothing would answer at the open ports: kube_proxy is none",
        "remove it, or write how kube-proxy runs",
    ),
)


@rule("cni-dockershim", ERROR, "A plugin for kubelet's own way to Docker must have a kubelet that has it")
def cni_dockershim(given: RuleInput) -> Iterator[Finding]:
    row, docker = _plugin(given), given.config.runtime.docker
    if "dockershim_only" in row and (docker is None or docker.cri_dockerd is not None):
        others = [name for name, other in table("cni")["plugins"].items() if other.get("is_cni_plugins")]
        yield Finding(
            ("cni", "plugin"),
            f"{row['title']} cannot be used with this container runtime: {row['dockershim_only']}",
            f"choose {' or '.join(others)}, or Docker without cri-dockerd and Kubernetes before 1.24",
        )


@rule("ovn-kubernetes-needs-url", ERROR, "OVN-Kubernetes must have the URL of its Windows program")
def ovn_kubernetes_needs_url(given: RuleInput) -> Iterator[Finding]:
    if given.config.cni.plugin == "ovn-kubernetes" and "hybrid_overlay_url" not in given.config.overrides:
        yield Finding(
            ("cni", "plugin"),
            "OVN-Kubernetes publishes no program for Windows",
            "build hybrid-overlay-node.exe with `make windows` in go-controller of its repository, and write its https "
            "URL to overrides.hybrid_overlay_url",
        )


@rule("cni-needs-hyper-v", ERROR, "A plugin that uses Hyper-V's switch must have Hyper-V", why="N13 of docs/reality.md")
def cni_needs_hyper_v(given: RuleInput) -> Iterator[Finding]:
    row = _plugin(given)
    if row.get("needs_hyper_v") and given.config.windows.hyper_v == "none":
        yield Finding(
            ("cni", "plugin"), f"{row['title']} uses Hyper-V's switch", "write windows.hyper_v: tools, or isolation"
        )


@rule("cni-api-version", ERROR, "The plugin must know the network service that the container runtime uses")
def cni_api_version(given: RuleInput) -> Iterator[Finding]:
    row = _plugin(given)
    if row.get("containerd_only") and given.config.runtime.docker is not None:
        message = f"{row['title']} makes a network of version 2, and Docker uses only version 1"
        yield Finding(("cni", "plugin"), message, "choose containerd")


@rule("cni-version-published", ERROR, "The network plugin must have a public archive, or an address of your own")
def cni_version_published(given: RuleInput) -> Iterator[Finding]:
    archive, version = _plugin(given).get("archive"), given.config.cni.version
    own = "network_plugin_url" in given.config.overrides or given.config.artifacts.mirror
    if archive and version and version not in archive["published"] and not own:
        yield Finding(
            ("cni", "version"),
            f"imagegen knows no public archive of {_plugin(given)['title']} {version}",
            f"set overrides.network_plugin_url or artifacts.mirror, or choose {' or '.join(archive['published'])}",
        )


@rule("overlay-on-release", ERROR, "Overlay networks must work on the Windows release")
def overlay_on_release(given: RuleInput) -> Iterator[Finding]:
    windows = table("windows")
    row = {**windows["refused"], **windows["releases"]}.get(given.config.windows.release, {})
    if row.get("overlay") == "broken" and _is_overlay(given):
        yield Finding(
            ("cni", "plugin"),
            f"overlay networks do not work on this release: {row['reason']}",
            "choose another release, or a plugin without an overlay network",
        )


@rule("host-name-length", ERROR, "The longest host name must be short enough for Windows and the cloud")
def host_name_length(given: RuleInput) -> Iterator[Finding]:
    names, path = given.config.host_names, ("host_names", "longest")
    netbios, label, limits = limit_of("computer_name"), limit_of("host_name"), table("limits")["limits"]
    if names.longest is None:
        return
    length = len(names.longest)
    of_clouds = [limits[name] for cloud in given.providers if (name := f"{cloud}_computer_name") in limits]
    reason = next((limit["reason"] for limit in of_clouds if length > limit["max"]), None)
    if length > label["max"]:
        yield Finding(
            path,
            f"it has {length} characters, more than the maximum of {label['max']}",
            "shorten the names of the cluster and the machines",
        )
    elif reason:
        yield Finding(
            path, f"it has {length} characters: {reason}", "shorten the names of the cluster and the machines"
        )
    elif names.netbios_compatible and length > netbios["max"]:
        yield Finding(
            path,
            f"it has {length} characters: {netbios['reason']}, so two machines may get the same name",
            "shorten the names, or write netbios_compatible: false",
        )


@rule("proxy-hides-metadata", ERROR, "Requests to the cloud's own addresses must not go through the proxy")
def proxy_hides_metadata(given: RuleInput) -> Iterator[Finding]:
    """Only proxy.http matters, because these addresses use http."""
    proxy, access = given.config.proxy, table("machines")["access"]
    # Python (cloudbase-init) supports `*` only as the single item.
    if proxy is None or proxy.http is None or proxy.no_proxy == ["*"]:
        return
    networks = [ipaddress.ip_network(item, strict=False) for item in proxy.no_proxy if "/" in item]
    addresses = dict.fromkeys(item for cloud in sorted(given.providers) for item in access[cloud]["asked_directly"])
    missing = [
        address
        for address in addresses
        if address not in proxy.no_proxy and not any(ipaddress.ip_address(address) in net for net in networks)
    ]
    if missing:
        yield Finding(
            ("proxy", "no_proxy"),
            f"requests to {', '.join(missing)} would go to the proxy, which cannot reach these addresses of the cloud",
            f"add {', '.join(missing)} to no_proxy",
        )


@rule("proxy-over-tls", WARNING, "proxy.https should be an http:// address")
def proxy_over_tls(given: RuleInput) -> Iterator[Finding]:
    proxy = given.config.proxy
    if proxy is not None and proxy.https is not None and proxy.for_downloads is None:
        yield Finding(
            ("proxy", "https"),
            f"Windows PowerShell cannot connect to {proxy.https} over TLS, so the builder downloads without a proxy",
            "write http:// if the proxy also listens without TLS",
        )
