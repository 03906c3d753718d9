"""Configs whose samples tests compare and check."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from imagegen.rules.nodes import find_lack_of_host_process
from imagegen.samples.make import Samples, SamplesRequest, make_samples
from tests.conftest import REPOSITORY, load_today

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
KUBE_PROXY = {"kube-proxy": "registry.example.com/kube-proxy:1"}
FLANNEL = {"flannel": "registry.example.com/flannel:1"}
WINS = ("kube_proxy=wins", "wins={version: 0.4.11}")


@dataclasses.dataclass(frozen=True)
class Case:
    """What is set, and what the operator says about the cluster."""

    sets: tuple[str, ...] = ()
    network: str | None = None
    images: Mapping[str, str] = dataclasses.field(default_factory=dict)
    file: Path = BASE

    @property
    def minor(self) -> int:
        """The minor of Kubernetes."""
        versions = re.findall(r"kubernetes\.version=1\.([0-9]+)", " ".join(self.sets))
        return int(versions[0]) if versions else 36


def docker(version: str, engine: str, *, cri_dockerd: bool = False) -> tuple[str, ...]:
    """The settings of a Docker node, which has no HostProcess containers."""
    runtime = f"{{version: {engine}{', cri_dockerd: 0.3.20' if cri_dockerd else ''}}}"
    network = ("runtime.fake_host_network=true",) if version >= "1.17" else ()
    return (
        *(f"kubernetes.version={version}", "runtime.containerd=null", f"runtime.docker={runtime}", "allow_eol=true"),
        *("windows.release=2019", *network),
    )


def containerd(version: str) -> tuple[str, ...]:
    """The settings of a containerd node of an older Kubernetes."""
    gate = ("kubernetes.feature_gates={WindowsHostProcessContainers: true}",) if version.startswith("1.22") else ()
    return (
        *(f"kubernetes.version={version}", "runtime.containerd.version=1.7.35", "allow_eol=true"),
        *("windows.release=2019", *gate),
    )


def make(case: Case) -> Samples:
    """The samples of a config."""
    loaded = load_today(case.file, *case.sets)
    request = SamplesRequest(case.network, case.images, "10.244.0.0/16", "10.96.0.0/12")
    return make_samples(list(loaded.specs.values()), find_lack_of_host_process(loaded.config), request)


def texts(samples: Samples) -> dict[str, str]:
    """The files by name."""
    return {file.name: file.text for file in samples.files}


BRIDGE = "cni={plugin: win-bridge}"
# Compared whole.
AGREED = {
    "calico": Case(network="calico"),
    "flannel-routes": Case(network="flannel-host-gw", images=FLANNEL),
    "flannel-by-wins": Case(
        (*docker("1.18.20", "19.03.15"), *WINS), network="flannel-vxlan", images={**KUBE_PROXY, **FLANNEL}
    ),
    "services": Case(
        (
            *("cni={plugin: flannel}", "kube_proxy=service", "windows.hyper_v=isolation"),
            *("targets.aws.instance_types=[m5.metal]", "targets.azure.vm_sizes=[Standard_D4s_v5]"),
        )
    ),
}
CASES = {
    **AGREED,
    "flannel-overlay": Case(network="flannel-vxlan", images=FLANNEL),
    "routes-by-wins": Case(
        (*docker("1.18.20", "19.03.15"), *WINS), network="flannel-host-gw", images={**KUBE_PROXY, **FLANNEL}
    ),
    "bridge": Case((BRIDGE,)),
    "overlay": Case(("cni={plugin: win-overlay}",)),
    "docker-1.14": Case((*docker("1.14.10", "18.09.9"), "kube_proxy=none")),
    "wins-1.28": Case((*docker("1.28.15", "28.5.1", cri_dockerd=True), *WINS, BRIDGE), images=KUBE_PROXY),
    "wins-1.34": Case((*docker("1.34.2", "28.5.1", cri_dockerd=True), *WINS, BRIDGE), images=KUBE_PROXY),
    **{
        f"flannel-1.{minor}": Case(containerd(f"1.{minor}.1"), network=network, images={**KUBE_PROXY, **FLANNEL})
        for minor, network in ((22, "flannel-vxlan"), (23, "flannel-host-gw"), (27, "flannel-vxlan"))
    },
    **{
        f"wins-1.{minor}": Case((*docker(f"1.{minor}.1", "20.10.9"), *WINS, BRIDGE), images=KUBE_PROXY)
        for minor in (15, 16, 17, 19, 20, 22)
    },
    "calico-services": Case(
        ("cni={plugin: azure, version: 1.6.21, policy: calico}", "targets.aws=null", "kube_proxy=service")
    ),
    "routed": Case((*docker("1.22.17", "20.10.9"), "cni={plugin: wincni}", *WINS), images=KUBE_PROXY),
    "newest": Case(("kubernetes.version=1.37.0", "runtime.containerd.version=2.3.4"), network="calico"),
}
