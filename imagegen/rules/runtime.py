"""The rules for the container runtime: Docker, containerd, its registries and its own settings. Pure."""

from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import CatalogRow, find_row, is_compatible, is_listed, minor, numbers, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

# From this version on, kubelet looks for a network named `host` on Docker nodes.
_LOOKS_FOR_HOST: Final = (1, 17)


@rule("docker-needs-cri-dockerd", ERROR, "Docker requires cri-dockerd from Kubernetes 1.24 on")
def docker_needs_cri_dockerd(given: RuleInput) -> Iterator[Finding]:
    docker, minors = given.config.runtime.docker, table("kubernetes")["minors"]
    found = find_row(minors, given.config.kubernetes.version)
    if docker and found and not docker.cri_dockerd and not found.row["dockershim"]:
        last = [name for name, row in minors.items() if row["dockershim"]][-1]
        yield Finding(
            ("runtime", "docker"),
            f"kubelet supports Docker without cri-dockerd only up to Kubernetes {last}",
            "set cri_dockerd to a version, or choose containerd",
        )


@rule("host-network-is-dockers", ERROR, "fake_host_network must be used only with Docker, and from Kubernetes 1.17 on")
def host_network_is_dockers(given: RuleInput) -> Iterator[Finding]:
    runtime, version = given.config.runtime, given.config.kubernetes.version
    path: YamlPath = ("runtime", "fake_host_network")
    if runtime.fake_host_network and not runtime.docker:
        yield Finding(path, "fake_host_network has no effect with containerd", "leave it out")
    elif runtime.fake_host_network and () < numbers(minor(version)) < _LOOKS_FOR_HOST:
        yield Finding(
            path,
            f"fake_host_network has no effect with kubelet {minor(version)}",
            "leave it out, or choose Kubernetes 1.17 or later",
        )


@rule("containerd-kubernetes", ERROR, "containerd and Kubernetes must have compatible versions")
def containerd_kubernetes(given: RuleInput) -> Iterator[Finding]:
    found, version = _containerd_line(given), given.config.kubernetes.version
    if found and find_row(table("kubernetes")["minors"], version) and not is_compatible(found.row, version):
        others = [
            name
            for name, row in table("containerd")["lines"].items()
            if is_compatible(row, version) and is_listed(row["newest_patch"], version)
        ]
        yield Finding(
            ("runtime", "containerd", "version"),
            found.row["kubernetes"]["reason"],
            f"with Kubernetes {minor(version)} choose one of {', '.join(others)}"
            if others
            else f"no containerd works with Kubernetes {minor(version)}: choose a newer Kubernetes",
        )


def _containerd_line(given: RuleInput) -> CatalogRow | None:
    """The catalogue's row for the containerd of the config; None without one."""
    containerd = given.config.runtime.containerd
    return find_row(table("containerd")["lines"], containerd.version) if containerd else None


@rule(
    "containerd-kubernetes-untested",
    WARNING,
    "containerd's own support list should have its version with this Kubernetes",
)
def containerd_kubernetes_untested(given: RuleInput) -> Iterator[Finding]:
    containerd, version = given.config.runtime.containerd, given.config.kubernetes.version
    line = _containerd_line(given)
    if containerd and line and is_compatible(line.row, version) and not is_listed(containerd.version, version):
        choices = " or ".join(table("containerd")["tested"][minor(version)]["at_least"])
        yield Finding(
            ("runtime", "containerd", "version"),
            f"containerd {containerd.version} is not tested with Kubernetes {minor(version)}, says its support list",
            f"choose {choices}, or a later patch of one of them",
        )
