"""A node comes up from every kind of image that imagegen can build: each shipped config, Kubernetes minor, containerd
line and Windows release, and each setting that changes what is on the disk or how it is read.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import TYPE_CHECKING

import pytest

from imagegen.catalog.facts import is_compatible, is_listed, numbers, table
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.user_data import make_user_data
from imagegen.rehearsal.cloudbase_init.run import Runner
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_cluster_data, make_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Boot
    from imagegen.rehearsal.boot.model import Instance

pytestmark = pytest.mark.e2e

# One target on each cloud.
BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
OWN_FILES = REPOSITORY / "tests" / "data" / "own-files" / "config.yaml"
DOCKER = REPOSITORY / "tests" / "data" / "docker.yaml"
CONFIGS = REPOSITORY / "configs"
CLOUDS = ("aws", "azure")
# In these minors kubeadm, kubelet or what the image brings for them changes: both clouds are tested.
CHANGES = ("1.15", "1.22", "1.23", "1.24", "1.26", "1.28", "1.30", "1.31", "1.34")
PROXY = "http://proxy.example.com:3128"
_PLUGINS = (
    "cloudbaseinit.plugins.windows.createuser.CreateUserPlugin",
    "cloudbaseinit.plugins.windows.ntpclient.NTPClientPlugin",
    "cloudbaseinit.plugins.common.userdata.UserDataPlugin",
    "cloudbaseinit.plugins.common.sethostname.SetHostNamePlugin",
)
_ORDER = f"[{', '.join(_PLUGINS)}]"
# By the case: the account that cloudbase-init configures, and one that it must not make. Where the cloud asks the VM's
# creator for an administrator, that one counts.
ACCOUNTS = {"user and groups-aws": ("operator", "capi"), "user and groups-azure": ("capi", "operator")}
_EAST = "{provider: aws, region: us-east-2, network: {allowed_cidrs: [192.0.2.0/24]}}"
PROVIDERS = (
    "credential_providers=[{name: acr-credential-provider, url: 'https://artifacts.example.com/acr.exe',"
    " match_images: ['*.azurecr.io'], args: ['C:\\k\\azure.json']},"
    " {name: ecr-credential-provider, url: 'https://artifacts.example.com/ecr', match_images: [public.ecr.aws]}]"
)


def _old_node(version: str) -> tuple[str, ...]:
    node = ("windows.release=2019", "runtime.containerd.version=1.6.39", "allow_eol=true")
    return (f"kubernetes.version={version}", *node)


_CORE = "windows.container_images=['mcr.microsoft.com/windows/servercore:{}']"
_CRI_DOCKERD = ("runtime.containerd=null", "kube_proxy=none", "runtime.docker.cri_dockerd=0.3.20")


def _version(docker: str) -> tuple[str, ...]:
    return (f"runtime.docker.version={docker}",)


def _old_docker(version: str) -> tuple[str, ...]:
    return (*_CRI_DOCKERD, f"kubernetes.version={version}", "windows.release=2019", "allow_eol=true")


def _docker_node(version: str, docker: str) -> tuple[str, ...]:
    """Without cri-dockerd. kubelet looks for the network from 1.17 on."""
    network = ("runtime.fake_host_network=true",) if version >= "1.17" else ()
    return (*_old_docker(version), *_version(docker), "runtime.docker.cri_dockerd=null", *network)


_OVN = (
    *("cni={plugin: ovn-kubernetes, version: 1.3.0}", "windows.hyper_v=tools"),
    "overrides.hybrid_overlay_url=https://artifacts.example.com/hybrid-overlay-node.exe",
)


# (what it is, its targets, what it sets)
SETTINGS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("install path", CLOUDS, (r"kubernetes.install_path=C:\kubernetes\bin",)),
    (
        "gates and flags",
        CLOUDS,
        (
            "kubernetes.feature_gates={WindowsGracefulNodeShutdown: false}",
            'kubernetes.kubelet_flags={image-gc-high-threshold: "85", node-labels: "pool=windows,tier=gold", v: "4"}',
        ),
    ),
    ("proxy", CLOUDS, (f"proxy={{http: '{PROXY}', https: '{PROXY}', no_proxy: [169.254.169.254, 168.63.129.16]}}",)),
    ("serial port", CLOUDS, ('cloudbase_init.logging={file: first-boot.log, serial_port: "COM1,115200,N,8"}',)),
    (
        "plugins in another order",
        CLOUDS,
        (
            *(f"cloudbase_init.plugins.{cloud}={_ORDER}" for cloud in CLOUDS),
            "cloudbase_init.real_time_clock_utc=true",
        ),
    ),
    ("user and groups", CLOUDS, ("cloudbase_init.user=operator", "cloudbase_init.groups=[Users, Nodes]")),
    ("users of the wireserver", ("azure",), ("targets.azure.wire_server_users=[monitoring, backup agent]",)),
    (
        "users of the wireserver beside cloudbase-init's account",
        ("azure",),
        ("targets.azure.wire_server_users=[monitoring]", "kubernetes.version=1.30.14", "allow_eol=true"),
    ),
    (
        "containerd's settings",
        ("aws",),
        (
            "runtime.containerd.registry_mirrors={docker.io: ['https://mirror.example.com/']}",
            "runtime.containerd.max_concurrent_downloads=5",
            "runtime.containerd.discard_unpacked_layers=false",
            "runtime.containerd.settings=\"[debug]\\nlevel = 'info'\\n\"",
        ),
    ),
    ("pause image", ("azure",), ("kubernetes.pause_image=registry.example.com/pause:3.10.2",)),
    ("time zone", CLOUDS, ("windows.time_zone=W. Europe Standard Time_dstoff",)),
    ("desktop", ("azure",), ("windows.edition=full",)),
    (
        "programs of one's own",
        CLOUDS,
        (
            r"executables=[{url: 'https://artifacts.example.com/a', path: 'C:\ProgramData\tools\a.exe'},"
            r" {url: 'https://artifacts.example.com/b', path: 'C:\k\b.exe'}]",
        ),
    ),
    ("credential providers", CLOUDS, (PROVIDERS,)),
    *(
        (f"credential providers with Kubernetes {version}", (target,), (PROVIDERS, *_old_node(version)))
        for target, version in (("aws", "1.20.15"), ("azure", "1.24.17"), ("aws", "1.29.15"), ("azure", "1.30.14"))
    ),
    ("csi-proxy", CLOUDS, ("csi_proxy={}",)),
    ("container images", CLOUDS, ("images=[registry.example.com/a:1]", _CORE.format("ltsc2022"))),
    ("container images on 2025", ("aws",), ("windows.release=2025", _CORE.format("ltsc2022"))),
    (
        "container images with a containerd that pins none",
        ("aws",),
        (*_old_node("1.22.17"), "runtime.containerd.version=1.5.18", _CORE.format("ltsc2019")),
    ),
    ("win-bridge", CLOUDS, ("cni.plugin=win-bridge",)),
    ("win-bridge on another path", ("aws",), ("cni.plugin=win-bridge", r"kubernetes.install_path=C:\opt\kube")),
    ("win-bridge with an older containerd", ("azure",), ("cni.plugin=win-bridge", *_old_node("1.24.17"))),
    ("the plugin of the virtual network", ("azure",), ("cni={plugin: azure, version: 1.6.21}", "kube_proxy=service")),
    ("kube-proxy without a plugin of the image", ("azure",), ("kube_proxy=service",)),
    ("kube-proxy in an overlay", CLOUDS, ("cni.plugin=flannel", "kube_proxy=service")),
    (
        "kube-proxy on a bridge",
        ("aws",),
        ("cni.plugin=win-bridge", "kube_proxy=service", "kubernetes.source=node-tarball"),
    ),
    *(
        (
            f"kube-proxy with Kubernetes {version}",
            ("azure",),
            ("cni.plugin=win-overlay", "kube_proxy=service", *_old_node(version)),
        )
        for version in ("1.19.16", "1.22.17")
    ),
    ("flannel", CLOUDS, ("cni={plugin: flannel, mtu: 1400}",)),
    ("flannel with routes", CLOUDS, ("cni={plugin: flannel, mode: host-gw}",)),
    ("flannel beside nssm", ("aws",), ("cni.plugin=flannel", "kubernetes.service_manager=nssm")),
    ("flannel with an older Kubernetes", ("azure",), ("cni.plugin=flannel", *_old_node("1.22.17"))),
    ("win-overlay", CLOUDS, ("cni={plugin: win-overlay, vni: 5000}",)),
    ("Calico in HostProcess pods", CLOUDS, ("cni.plugin=calico",)),
    ("Calico in HostProcess pods on 2025", ("aws",), ("cni.plugin=calico", "windows.release=2025")),
    (
        "Calico in HostProcess pods behind the gate",
        ("azure",),
        (
            *("cni={plugin: calico, version: 3.27.0}", *_old_node("1.22.17")),
            "kubernetes.feature_gates={WindowsHostProcessContainers: true}",
        ),
    ),
    ("Calico as services", CLOUDS, ("cni={plugin: calico, mode: vxlan}", "kube_proxy=none")),
    (
        "Calico as services beside Docker",
        ("azure",),
        (
            *(*_docker_node("1.22.17", "20.10.9"), "cni={plugin: calico, mode: vxlan, vni: 5000, version: 3.24.5}"),
            *("kube_proxy=wins", "wins={version: 0.4.11}", "kubernetes.service_manager=nssm"),
        ),
    ),
    (
        "Calico for the policies of another plugin",
        ("azure",),
        ("cni={plugin: azure, version: 1.6.21, policy: calico}", "kube_proxy=service"),
    ),
    ("OVN-Kubernetes", CLOUDS, (*_OVN, "kube_proxy=service")),
    (
        "OVN-Kubernetes on another port beside nssm",
        ("aws",),
        (*_OVN, "cni.port=9898", "kubernetes.service_manager=nssm", r"kubernetes.install_path=C:\opt\kube"),
    ),
    ("wincni", CLOUDS, (*_docker_node("1.22.17", "20.10.9"), "cni.plugin=wincni")),
    (
        "wincni and kube-proxy",
        ("aws",),
        (*_docker_node("1.18.20", "19.03.15"), "cni.plugin=wincni", "kube_proxy=service"),
    ),
    (
        "kube-proxy by wins",
        CLOUDS,
        (*_old_node("1.22.17"), "cni.plugin=win-overlay", "kube_proxy=wins", "wins={version: 0.4.11}"),
    ),
    (
        "kube-proxy by wins beside Docker",
        ("aws",),
        (*_docker_node("1.22.17", "20.10.9"), "cni.plugin=flannel", "kube_proxy=wins", "wins={version: 0.0.4}"),
    ),
    (
        "wins",
        CLOUDS,
        (
            *("kubernetes.version=1.22.17", "windows.release=2019", "runtime.containerd.version=1.6.39"),
            *("allow_eol=true", "kube_proxy=none", "wins={version: 0.4.11}"),
        ),
    ),
    (
        "wins, SSH and gMSA beside Docker",
        CLOUDS,
        (
            "runtime={containerd: null, docker: {version: 28.5.1, cri_dockerd: 0.3.20}}",
            *("kube_proxy=none", "wins={version: 0.4.11}", "ssh={}", "gmsa={}"),
        ),
    ),
    ("gMSA", CLOUDS, ("gmsa={}",)),
    ("SSH", CLOUDS, ("ssh={port: 2222}",)),
    ("SSH from a zip", CLOUDS, ("ssh={source: zip}",)),
    ("nssm", CLOUDS, ("kubernetes.service_manager=nssm",)),
    *(
        (f"nssm with Kubernetes {version}", (target,), ("kubernetes.service_manager=nssm", *_old_node(version)))
        for target, version in (("aws", "1.20.15"), ("azure", "1.24.17"))
    ),
    ("updates", CLOUDS, ("windows.updates={categories: [critical, security], exclude: [KB5034439]}",)),
    ("Hyper-V's tools", CLOUDS, ("windows.hyper_v=tools",)),
    ("Hyper-V", CLOUDS, ("windows.hyper_v=isolation", "targets.aws.instance_types=[m8i.large]")),
    (
        "Hyper-V with an old Kubernetes",
        ("azure",),
        ("windows.hyper_v=isolation", "targets.aws.instance_types=[m8i.large]", *_old_node("1.20.15")),
    ),
    ("node tarball", ("aws",), ("kubernetes.source=node-tarball",)),
    (
        "node tarball without a log runner",
        ("azure",),
        (
            "kubernetes.source=node-tarball",
            *("kubernetes.version=1.22.17", "windows.release=2019", "runtime.containerd.version=1.6.39"),
            "allow_eol=true",
        ),
    ),
    *(
        (f"Docker {docker} with Kubernetes {version}", (target,), _docker_node(version, docker))
        for target, version, docker in (
            *(("aws", "1.14.10", "18.09.9"), ("azure", "1.18.20", "19.03.15"), ("aws", "1.22.17", "20.10.9")),
            *(("azure", "1.23.17", "29.1.0"), ("aws", "1.23.17", "29.3.0")),
        )
    ),
    (
        "Docker of the test channel",
        ("azure",),
        (*_CRI_DOCKERD, *_version("29.3.0-rc.1"), "runtime.docker.channel=test"),
    ),
    (
        "Docker of Mirantis",
        ("aws",),
        (
            *(*_CRI_DOCKERD, *_version("25.0.5"), "runtime.docker.edition=mirantis"),
            "overrides.docker_url=https://artifacts.example.com/docker.zip",
        ),
    ),
    (
        "Docker with a network plugin",
        CLOUDS,
        (*_CRI_DOCKERD, *_version("28.5.1"), "kube_proxy=service", "cni.plugin=win-bridge"),
    ),
    (
        "Docker with a network plugin that kubelet starts itself",
        ("azure",),
        (*_docker_node("1.22.17", "20.10.9"), "kube_proxy=service", "cni={plugin: flannel, mode: host-gw}"),
    ),
    ("Docker with nssm", ("azure",), (*_CRI_DOCKERD, *_version("28.5.1"), "kubernetes.service_manager=nssm")),
    *(
        (f"cri-dockerd with Kubernetes {version}", (target,), (*_old_docker(version), *_version("28.5.1")))
        for target, version in (("aws", "1.23.17"), ("azure", "1.24.17"), ("aws", "1.30.14"))
    ),
    ("another target of a cloud", ("east",), (f"targets.east={_EAST}",)),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """An image, and what is different from the base config."""

    name: str
    target: str
    sets: tuple[str, ...] = ()
    file: Path = BASE
    data: str = ""
    """The user data of Cluster API; without a name it is the rehearsal's own."""


def _boot(case: Case, folder: Path, host_name: str = "") -> Boot:
    def change(instance: Instance) -> Instance:
        return dataclasses.replace(instance, host_name=host_name or instance.host_name)

    image = make_image(case.target, folder / "image", load_today(case.file, *case.sets))
    make_data = make_cluster_data(case.data) if case.data else make_user_data
    return boot_image(image, Runner(folder, os.environ), make_data, change)


def _shipped() -> Iterator[Case]:
    # The reference has every key, most of them as comments.
    yield from (Case("docker-node", target, file=DOCKER) for target in CLOUDS)
    for file in sorted(set(CONFIGS.glob("*.yaml")) - {CONFIGS / "reference.yaml"}):
        for target in CLOUDS:
            if f"\n  {target}:" in file.read_text():
                yield Case(file.stem, target, file=file)


def _minors() -> Iterator[Case]:
    """Each minor on the newest Windows release and with the newest containerd that it runs with."""
    minors = table("kubernetes")["minors"]
    known = [name for name, row in minors.items() if _containerd(row["latest_patch"])]
    for at, name in enumerate(known):
        row = minors[name]
        release = [release for release, found in row["windows"].items() if found["verdict"] != "refused"]
        version = row["latest_patch"]
        sets = (
            f"kubernetes.version={version}",
            f"windows.release={max(set(release) - {'annual'})}",
            f"runtime.containerd.version={_containerd(version)[-1]}",
            "allow_eol=true",
        )
        both = name in CHANGES or name == known[-1]
        targets = CLOUDS if both else [CLOUDS[at % 2]]
        # Cluster API's template for Azure names a flag that kubelet no longer has.
        lacks_flag = numbers(name) >= (1, 30)
        data = {"aws": "aws", "azure": "minimal" if lacks_flag else "azure"}
        yield from (Case(f"Kubernetes {name}", target, sets, data=data[target]) for target in targets)


def _containerd(kubernetes: str) -> list[str]:
    """The newest patch of each containerd line that works with a Kubernetes version."""
    lines = table("containerd")["lines"].values()
    return [
        row["newest_patch"]
        for row in lines
        if is_compatible(row, kubernetes) and is_listed(row["newest_patch"], kubernetes)
    ]


def _lines() -> Iterator[Case]:
    """Each containerd line with the newest Kubernetes minor that it works with."""
    minors = table("kubernetes")["minors"].values()
    for at, row in enumerate(table("containerd")["lines"].values()):
        patch = row["newest_patch"]
        *_, version = (known["latest_patch"] for known in minors if patch in _containerd(known["latest_patch"]))
        sets = (f"runtime.containerd.version={patch}", f"kubernetes.version={version}", "allow_eol=true")
        yield Case(f"containerd {patch}", CLOUDS[at % 2], sets)


def _settings() -> Iterator[Case]:
    for name, targets, sets in SETTINGS:
        yield from (Case(name, target, sets, data=_data_of_runtime(name)) for target in targets)


def _data_of_runtime(name: str) -> str:
    """The user data for an image with Docker: it names the socket of the container runtime."""
    found = re.fullmatch(r"(Docker|cri-dockerd)(?: [\d.]+)? with Kubernetes ([\d.]+)", name)
    if not found:
        return ""
    if found[1] == "cri-dockerd":
        return "cri-dockerd"
    return "docker-of-1-14" if found[2].startswith("1.14.") else "docker"


# Settings that name files beside the config.
_OWN_FILES = [Case("programs and scripts of one's own", target, file=OWN_FILES) for target in CLOUDS]
CASES = [*_shipped(), *_minors(), *_lines(), *_settings(), *_OWN_FILES]


def _chosen() -> list[Case]:
    """Every case at night. Otherwise each shipped config and each minor once, on the clouds in turns, and every second
    of the others."""
    if os.environ.get("IMAGEGEN_NIGHTLY"):
        return CASES
    always = {case.name for case in (*_shipped(), *_minors(), *_OWN_FILES)}
    others = list(dict.fromkeys(case.name for case in CASES if case.name not in always))
    by_name = {name: [case for case in CASES if case.name == name] for name in (*sorted(always), *others[::2])}
    return [cases[at % len(cases)] for at, cases in enumerate(by_name.values())]


@pytest.mark.parametrize("case", _chosen(), ids=lambda case: f"{case.name}-{case.target}")
def test_a_node_comes_up(tmp_path: Path, case: Case) -> None:
    booted = _boot(case, tmp_path)
    assert booted.faults == []
    if accounts := ACCOUNTS.get(f"{case.name}-{case.target}"):
        assert [booted.machine.accounts.user(name) is not None for name in accounts] == [True, False]


@pytest.mark.parametrize("netbios", ["true", "false"])
def test_a_node_with_a_long_name_comes_up(tmp_path: Path, netbios: str) -> None:
    """EC2 gives such names to instances with long addresses. Windows' own name may be shorter than the node's."""
    case = Case("long name", "aws", (f"host_names.netbios_compatible={netbios}",))
    assert _boot(case, tmp_path, "ip-10-100-200-150.us-east-2.compute.internal").faults == []


def test_every_kind_is_there() -> None:
    """The cases come from the catalogue and the shipped configs: an empty list would pass."""
    names = {case.name for case in CASES}
    assert {"windows-2019-containerd", "windows-2025-containerd", "annual-channel", "air-gapped"} <= names
    assert {f"Kubernetes {minor}" for minor in CHANGES} | {"containerd 1.6.39", "containerd 2.4.2"} <= names
    assert {case.target for case in CASES} == {*CLOUDS, "east"}
    assert set(ACCOUNTS) <= {f"{case.name}-{case.target}" for case in CASES}
