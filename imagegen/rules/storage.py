"""The rules for csi-proxy. Pure."""

from collections.abc import Iterator

from imagegen.catalog.facts import minor, numbers
from imagegen.catalog.products import find_product
from imagegen.rules.nodes import find_lack_of_host_process
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule


@rule("csi-proxy-known", ERROR, "csi-proxy must have a program, and an address where it is published")
def csi_proxy_known(given: RuleInput) -> Iterator[Finding]:
    csi_proxy, product = given.config.csi_proxy, find_product("csi-proxy")
    version = csi_proxy and csi_proxy.version
    if not version or product is None:
        return
    path, known, before = ("csi_proxy", "version"), product.default["version"], product.range["before"]
    if numbers(version) >= numbers(before):
        yield Finding(
            path,
            f"csi-proxy has no program from {before} on: it is a library of the storage drivers",
            f"choose an older version, or leave csi_proxy out. Version with a public archive: {known}",
        )
    elif version != known and "csi_proxy_url" not in given.config.overrides and not given.config.artifacts.mirror:
        yield Finding(
            path,
            f"imagegen knows no public archive of csi-proxy {version}",
            f"set overrides.csi_proxy_url or artifacts.mirror, or leave the version out for {known}",
        )


@rule("csi-proxy-kubernetes", ERROR, "Kubernetes must support csi-proxy")
def csi_proxy_kubernetes(given: RuleInput) -> Iterator[Finding]:
    product, version = find_product("csi-proxy"), given.config.kubernetes.version
    first = product.range["kubernetes"] if product else version
    if given.config.csi_proxy is not None and numbers(minor(version)) < numbers(first):
        yield Finding(
            ("csi_proxy",),
            f"csi-proxy needs Kubernetes {first} or later, and this is {minor(version)}",
            "leave csi_proxy out",
        )


@rule(
    "csi-proxy-beside-host-process",
    WARNING,
    "csi-proxy should be used only on nodes without HostProcess containers, or for drivers that connect to its pipes",
)
def csi_proxy_beside_host_process(given: RuleInput) -> Iterator[Finding]:
    if given.config.csi_proxy is not None and not find_lack_of_host_process(given.config):
        yield Finding(
            ("csi_proxy",),
            "the node supports HostProcess containers, in which newer storage drivers run without csi-proxy",
            "leave csi_proxy out, unless a driver of your cluster connects to its pipes",
        )
