"""Makes the samples for a cluster: the manifests and commands that the nodes of an image need, and writes them.

Pure, but for the templates that it reads, and `write_samples`, which replaces the files of an earlier run.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.files import write_file
from imagegen.base.templating import evaluate, render_text
from imagegen.catalog.facts import is_overlay, numbers, table
from imagegen.providers.registry import provider_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

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


def bootstrap_context(spec: Spec, cluster_cidr: str, service_cidr: str, network: Network) -> dict[str, object]:
    """The values of a cloud's template. Commands are quoted as YAML needs it."""
    config = spec.config
    folder, powershell = config.kubernetes.install_path, f"powershell -NoProfile {spec.facts.script_policy}-File"
    pre = [f"{powershell} {path} || exit 1" for path in _paths(folder, "pre-kubeadm", config.kubeadm_scripts.pre)]
    post = []
    if spec.facts.cni_files:
        call = rf"{powershell} {folder}\set-pod-network.ps1"
        named = "" if spec.facts.pod_network else f" -NetworkName {network.name or 'NETWORK_NAME'}"
        ranges = f"-ClusterCidr {cluster_cidr} -ServiceCidr {service_cidr}"
        # Each node has its own, which a template cannot know.
        address = " -SourceVip SOURCE_VIP" if spec.facts.asks_source_address and network.overlay else ""
        post.append(f"{call} {ranges}{named}{address} || exit 1")
    post += [f"{powershell} {path}" for path in _paths(folder, "post-kubeadm", config.kubeadm_scripts.post)]
    asks_docker = config.runtime.docker is not None and config.runtime.docker.cri_dockerd is None
    return {
        "name": f"{config.name}-{spec.target}",
        "settings": spec.settings,
        "pre": [json.dumps(command) for command in pre],
        "post": [json.dumps(command) for command in post],
        "files": [
            {"path": f"/etc/kubernetes/{name}.conf", "secret": f"{name}-kubeconfig"} for name in find_accounts(spec)
        ],
        "socket": _socket(spec),
        # kubeadm names its own for Docker, which may not run on the node's Windows.
        "sandbox_image": config.kubernetes.pause_image if asks_docker else None,
    }


def _paths(folder: str, name: str, scripts: Sequence[str]) -> Iterator[str]:
    """The paths of the scripts that the step `kubeadm-scripts` puts on the image."""
    for number, script in enumerate(scripts, 1):
        yield rf"{folder}\{name}\{number:02}-{script.rpartition('/')[2]}"


def find_accounts(spec: Spec) -> list[str]:
    """The kubeconfigs that services of the node read, by their names in `C:\\etc\\kubernetes`."""
    plugin = spec.config.cni.plugin
    asked = {
        "flannel": plugin == "flannel",
        "kube-proxy": spec.config.kube_proxy == "service",
        "calico": spec.facts.calico_version is not None,
        "hybrid-overlay": plugin == "ovn-kubernetes",
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _socket(spec: Spec) -> str:
    runtime = spec.config.runtime
    if runtime.containerd:
        return "npipe:////./pipe/containerd-containerd"
    if runtime.docker and runtime.docker.cri_dockerd:
        return "npipe:////./pipe/cri-dockerd"
    # kubeadm 1.14 knows no pipes.
    is_first = numbers(spec.config.kubernetes.version)[:2] <= (1, 14)
    return "tcp://localhost:2375" if is_first else "npipe:////./pipe/docker_engine"


_FOLDER: Final = Path(__file__).parent
_TEMPLATES: Final = _FOLDER / "templates"
_BOOTSTRAP: Final = "bootstrap.yaml.j2"
POD_SCRIPT: Final = "start-in-pod.ps1"
"""The script that pods run."""
INDEX: Final = "README.md"


@dataclasses.dataclass(frozen=True)
class SamplesRequest:
    """What the operator says about the cluster."""

    network: str | None
    """The network plugin that the cluster installs."""
    images: Mapping[str, str]
    """The operator's container images by name."""
    cluster_cidr: str
    service_cidr: str
    signed_script: Callable[[], bytes] | None = None
    """Takes the signed copy of the script of the pods, for nodes that run only signed scripts. Samples in which no such
    node runs it do not ask."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One file, and how to use it."""

    name: str
    title: str
    how: str
    text: str


@dataclasses.dataclass(frozen=True)
class SampleImage:
    """A container image that a sample uses."""

    name: str
    reference: str
    origin: str
    holds: str


@dataclasses.dataclass(frozen=True)
class Samples:
    """All samples for an image."""

    files: tuple[Sample, ...]
    images: tuple[SampleImage, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    """What has no sample, and why."""
    readme: str


def first_line(name: str) -> str:
    """The first line of a file. It names the file: another run must not replace or remove a copy."""
    text = f"`imagegen samples` wrote {name}. Another run replaces this file: change a copy with another name."
    return f"<!-- {text} -->" if name == INDEX else f"# {text}"


def name_patterns() -> set[str]:
    """The names that files can have, as patterns for `glob`."""
    return {INDEX, _bootstrap_name("*"), *(row["file"] for row in _index()["samples"])}


def make_samples(specs: Sequence[Spec], lack: Sequence[str], request: SamplesRequest) -> Samples:
    """The samples for an image with these targets. `lack` is the reason why its nodes have no HostProcess containers.

    Everything but the bootstrap configs is the same for every target of a config.
    """
    index = _index()
    network = find_network(specs[0], request.network)
    context = _context(specs, lack, request, network)
    rows = [row for row in index["samples"] if evaluate(row["when"], context)]
    needed = {name for row in rows for name in row.get("images", ())}
    images = _find_images(specs[0], sorted(needed), str(context["delivery"]), request.images)
    context["images"] = {image.name: image.reference for image in images}
    files = [
        Sample(row["file"], row["title"], row["how"], _render(row["file"], _read(row["template"]), context))
        for row in rows
    ]
    files += _bootstraps(specs, request, network)
    context["kinds"] = re.findall(r"(?m)^kind: (\w+)$", "\n".join(file.text for file in files))
    notes = tuple(render_text(row["text"], context) for row in index["notes"] if evaluate(row["when"], context))
    left = tuple(render_text(row["text"], context) for row in index["left_out"] if evaluate(row["when"], context))
    about = {
        **context,
        "files": [dataclasses.asdict(file) for file in files],
        "image_rows": [dataclasses.asdict(image) for image in images],
        "notes": notes,
        "left_out": left,
    }
    return Samples(tuple(files), images, notes, left, _render(INDEX, _read(f"{INDEX}.j2"), about))


def _index() -> dict[str, Any]:
    rows: dict[str, Any] = json.loads((_FOLDER / "samples.json").read_bytes())
    return rows


def _render(name: str, template: str, context: Mapping[str, object]) -> str:
    return f"{first_line(name)}\n{render_text(template, context)}"


def _context(specs: Sequence[Spec], lack: Sequence[str], request: SamplesRequest, network: Network) -> dict[str, Any]:
    """All values that samples use."""
    config, facts = specs[0].config, specs[0].facts
    version = numbers(config.kubernetes.version)
    gates = [f"{row['gate']}=true" for row in _gates() if version < numbers(row["on_since"])]
    by_wins = config.wins is not None
    known = table("samples")["accounts"]
    accounts = [known[name] for name in find_accounts(specs[0])]
    routes = table("samples").get("routes", {})
    clouds = [routes[name] for name in dict.fromkeys(spec.provider for spec in specs) if name in routes]
    return {
        "name": config.name,
        "kubernetes": {"version": config.kubernetes.version},
        "minor": list(version[:2]),
        "wins": config.wins is not None,
        "kube_proxy": config.kube_proxy,
        "facts": {"windows_build": facts.windows_build},
        "network": dataclasses.asdict(network),
        "delivery": "wins" if by_wins else "" if lack else "hostprocess",
        "lack": lack[0] if lack else "",
        "is_docker": config.runtime.docker is not None,
        "gates": ",".join(gates),
        "folder": config.kubernetes.install_path.removeprefix("C:"),
        "api_version": table("cni")["api_versions"]["containerd" if config.runtime.containerd else "docker"],
        "net_conf": net_conf(network, request.cluster_cidr),
        "cluster_cidr": request.cluster_cidr,
        "service_cidr": request.service_cidr,
        "port": table("cni")["vxlan"]["port"],
        "runtime_classes": list(_runtime_classes(specs[0])),
        "accounts": [row for row in accounts if row["account"]],
        "cloud_routes": " ".join(cloud[network.routes] for cloud in clouds if network.routes),
        "script": textwrap.indent(_read(POD_SCRIPT).rstrip(), "    "),
        "own_images": sorted(request.images),
        "only_signed": request.signed_script is not None,
        "signed_script": functools.partial(_signed_script, request),
    }


def _signed_script(request: SamplesRequest) -> str:
    return base64.b64encode(request.signed_script() if request.signed_script else b"").decode()


def _gates() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = table("kubernetes")["kube_proxy_gates"]
    return rows


def sample_scripts() -> dict[str, bytes]:
    """The scripts that pods of the samples run, by name."""
    return {POD_SCRIPT: (_TEMPLATES / POD_SCRIPT).read_bytes()}


def _read(template: str) -> str:
    return (_TEMPLATES / template).read_text(encoding="utf-8")


def _runtime_classes(spec: Spec) -> Iterator[dict[str, str]]:
    """One class for the release of the node, and one for each handler of Hyper-V on the image."""
    release = spec.config.windows.release
    yield {
        "name": f"windows-{release}",
        "handler": "runhcs-wcow-process" if spec.config.runtime.containerd else "docker",
    }
    if spec.facts.hyper_v.builds:
        yield {"name": f"windows-{release}-isolated", "handler": "runhcs-wcow-hypervisor"}
    releases = {row["build"]: name for name, row in table("windows")["releases"].items()}
    for build in spec.facts.hyper_v.builds:
        if build != spec.facts.windows_build:
            name = f"windows-{releases.get(build, build)}-isolated"
            yield {"name": name, "handler": f"runhcs-wcow-hypervisor-{build}"}


def _find_images(spec: Spec, needed: Sequence[str], delivery: str, given: Mapping[str, str]) -> tuple[SampleImage, ...]:
    """The images that the samples need: the operator's, or those of the catalogue."""
    if unused := sorted(given.keys() - set(needed)):
        used = f"these samples use {', '.join(needed)}" if needed else "no sample uses an image"
        raise ConfigError(f"--image {unused[0]}={given[unused[0]]} has no effect: {used}", hint="leave it out")
    known = table("samples")
    images: list[SampleImage] = []
    missing: dict[str, str] = {}
    for name in needed:
        holds = known["holds"][name][delivery]
        if name in given:
            images.append(SampleImage(name, given[name], "--image", holds))
        elif published := _find_published(name, delivery, spec.config.kubernetes.version):
            images.append(SampleImage(name, *published, holds))
        else:
            missing[name] = f"{name}: {known['missing'][name][delivery]}. It must hold {holds}"
    if missing:
        own = " ".join(f"--image {name}=registry.example.com/{name}:1" for name in missing)
        raise RefusedError(
            "the samples need container images that nobody publishes",
            details=missing.values(),
            hint=f"build them, and name yours: {own}",
        )
    return tuple(images)


def _find_published(name: str, delivery: str, version: str) -> tuple[str, str] | None:
    """The reference of a published image, and where that is known from."""
    known = table("samples")
    row = known["images"].get(name)
    # No image is published for a pre-release.
    if row is None or row["delivery"] != delivery or "-" in version or numbers(version) < numbers(row["since"]):
        return None
    source = known["sources"][row["source"]]
    return row["reference"].format(version=version), f"{source['from'].partition(':')[0]}, read {source['read']}"


def _bootstraps(specs: Sequence[Spec], request: SamplesRequest, network: Network) -> Iterator[Sample]:
    """The bootstrap config of each target, if its cloud has a template."""
    for spec in specs:
        template = provider_folder(spec.provider) / "samples" / _BOOTSTRAP
        if template.is_file():
            context = bootstrap_context(spec, request.cluster_cidr, request.service_cidr, network)
            name = _bootstrap_name(spec.target)
            text = _render(name, template.read_text(encoding="utf-8"), context)
            title = (
                f"the bootstrap config and the machine template of target {spec.target}, for the management cluster. "
                "Replace the words in capitals first"
            )
            yield Sample(name, title, f"kubectl apply -f {name}", text)


def _bootstrap_name(target: str) -> str:
    return f"bootstrap-{target}.yaml"


def write_samples(samples: Samples, folder: Path) -> None:
    """Write the files. A file of an earlier run that is no longer a sample is removed."""
    texts = {**{file.name: file.text for file in samples.files}, INDEX: samples.readme}
    own = {path for pattern in name_patterns() for path in folder.glob(pattern) if _is_own(path)}
    foreign = [
        path for path in (folder / name for name in texts) if path not in own and (path.exists() or path.is_symlink())
    ]
    if foreign:
        raise RefusedError(
            f"{foreign[0]} exists, and imagegen did not write it",
            hint="choose another folder for --out, or move the file",
        )
    for path in own - {folder / name for name in texts}:
        path.unlink()
    for name, text in texts.items():
        write_file(folder / name, text.encode())


def _is_own(path: Path) -> bool:
    """Whether an earlier run wrote the file."""
    if path.is_symlink() or not path.is_file():
        return False
    expected = first_line(path.name).encode() + b"\n"
    with path.open("rb") as opened:
        # The file may be somebody's, and of any size.
        return opened.read(len(expected)) == expected
