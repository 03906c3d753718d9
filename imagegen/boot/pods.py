"""What must be so about what runs pods: the container runtime, its images, and the network of pods."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError
from imagegen.boot.check import Check, say, some
from imagegen.boot.cloudbase_init import read_text, words
from imagegen.boot.guarded import layout_of
from imagegen.config.yaml import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.boot.node import Finding, Node
    from imagegen.settle.spec import Spec

CONTAINERD_PIPE: Final = "npipe:////./pipe/containerd-containerd"
CRI_DOCKERD_PIPE: Final = "npipe:////./pipe/cri-dockerd"
_EVENTS: Final = r"HKLM:\SYSTEM\CurrentControlSet\Services\EventLog\Application\docker"
_WINS: Final = "rancher-wins"
_WINS_CONFIG: Final = r"C:\etc\rancher\wins\config"
_WINS_PIPE: Final = "rancher_wins"
_HANDLER: Final = "runhcs-wcow-hypervisor"
# The sections of containerd's configuration that have the settings of network plugins.
_SECTIONS: Final = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_PLACEHOLDER: Final = re.compile(r"<[A-Z_]+>")


def is_running(node: Node, name: str) -> str:
    """Why a service that starts with Windows does not run. Empty if it does."""
    service = node.service(name)
    if service is None:
        return "it is not in the image"
    return service.failure if service.failure or service.is_running else "nothing started it"


def _describe(name: str, fault: str) -> str:
    return f"service {name} does not run: {fault}"


def _docker(node: Node) -> Iterator[Finding]:
    if not (docker := node.spec.config.runtime.docker):
        return
    service = node.service("docker")
    if service is None or service.failure or not service.is_running:
        yield say(_describe("docker", is_running(node, "docker") or "nothing started it"))
    messages = str(node.value(_EVENTS, "EventMessageFile") or "")
    if node.read(messages) is None:
        yield say("Docker's entries in the event log have no text")
    if docker.cri_dockerd is None:
        return
    cri = node.service("cri-dockerd")
    if cri is None or cri.failure or not cri.is_running:
        yield say(_describe("cri-dockerd", is_running(node, "cri-dockerd") or "nothing started it"))
        return
    layout, flags = layout_of(node.spec), dict(word.lstrip("-").partition("=")[::2] for word in words(cri.parameters))
    for flag, wanted in (
        ("network-plugin", "cni"),
        ("cni-bin-dir", layout["cni_bin"]),
        ("cni-conf-dir", layout["cni_config"]),
        ("pod-infra-container-image", node.spec.config.kubernetes.pause_image),
    ):
        if flags.get(flag) != wanted:
            yield say(f"cri-dockerd runs with --{flag}={flags.get(flag, '')}, expected {wanted}")


def _services(node: Node) -> Iterator[Finding]:
    """A service that only the join starts must be able to run."""
    for name in _added_services(node.spec):
        service = node.service(name)
        if service is None:
            yield say(_describe(name, "it is not in the image"))
        elif service.failure or (service.is_automatic and not service.is_running):
            yield say(_describe(name, is_running(node, name) or "nothing started it"))


def _added_services(spec: Spec) -> tuple[str, ...]:
    """The services that options of the config add."""
    config, calico = spec.config, spec.facts.calico_version is not None
    asked = {
        **{"csi-proxy": config.csi_proxy is not None, "flanneld": config.cni.plugin == "flannel"},
        **{"hybrid-overlay-node": config.cni.plugin == "ovn-kubernetes", "CalicoNode": calico, "CalicoFelix": calico},
        "kube-proxy": config.kube_proxy == "service",
    }
    return tuple(name for name, is_asked in asked.items() if is_asked)


def _images(node: Node) -> Iterator[Finding]:
    if fault := node.sandbox_fault():
        yield say(f"without a registry, no pod starts: {fault}")
    for name in _pulled(node.spec):
        if fault := node.image_fault(name):
            yield say(f"without a registry, a pod of {name} does not start: {fault}")


def _pulled(spec: Spec) -> tuple[str, ...]:
    config = spec.config
    tarballs = [tarball.name for tarball in config.image_tarballs]
    return (*config.windows.container_images, *config.images, *spec.facts.cni_images, *tarballs)


def _read_containerd(node: Node) -> dict[str, Any]:
    """The configuration with which containerd's service runs."""
    service = node.service("containerd")
    given = dict(itertools.pairwise(words(service.command if service else "")))
    text = read_text(node, given.get("--config", ""))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _handlers(node: Node) -> Iterator[Finding]:
    plugins = _read_containerd(node).get("plugins", {})
    runtimes = [plugins.get(name, {}).get("containerd", {}).get("runtimes", {}) for name in _SECTIONS]
    wanted = [_HANDLER, *(f"{_HANDLER}-{build}" for build in node.spec.facts.hyper_v.builds)]
    if missing := [name for name in wanted if not any(name in one for one in runtimes)]:
        yield say(f"containerd has no handler {some(missing)}")


def _folders(node: Node) -> tuple[Sequence[str], str]:
    """Where the runtime looks for the programs of network plugins, and for their configurations."""
    layout = layout_of(node.spec)
    if node.spec.config.runtime.docker:
        return [layout["cni_bin"]], layout["cni_config"]
    plugins = _read_containerd(node).get("plugins", {})
    cni: Mapping[str, Any] = next((plugins[name]["cni"] for name in _SECTIONS if "cni" in plugins.get(name, {})), {})
    # Only containerd 2.1 and later know the list, and it counts there.
    return cni.get("bin_dirs") or [cni.get("bin_dir", "")], cni.get("conf_dir", "")


def _pod_network(node: Node) -> Iterator[Finding]:
    """The files that set-pod-network.ps1 fills in: the first configuration names programs that are there, and the
    network that the script makes."""
    folder = rf"{node.spec.config.kubernetes.install_path}\cni"
    if not (places := read_text(node, rf"{folder}\places.txt")):
        yield say(rf"set-pod-network.ps1 finds no {folder}\places.txt")
        return
    programs, configurations = _folders(node)
    placed = [line.partition(" ")[::2] for line in places.splitlines() if line]
    named = sorted(
        (path, file) for file, path in placed if path.rpartition("\\")[0].lower() == configurations.lower() != ""
    )
    if not named:
        yield say(
            f"the node has no configuration of a network plugin in {configurations or 'the folder of the runtime'}"
        )
        return
    try:
        content = _read_json(node, rf"{folder}\{named[0][1]}")
        for name in _plugin_types(content):
            if not any(node.read(rf"{one}\{name}.exe") for one in programs):
                yield say(f'a pod gets no address: failed to find plugin "{name}" in {some(programs)}')
        if node.read(rf"{folder}\network.json") is not None:
            made = _read_json(node, rf"{folder}\network.json")["Name"]
            if made != content["name"]:
                yield say(f"the plugin looks for the network {content['name']}, and the node makes {made}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield say(rf"a pod gets no address: {folder}\{named[0][1]} cannot be read: {error}")


def _read_json(node: Node, path: str) -> Any:  # noqa: ANN401 - JSON
    """A file with what is filled in later."""
    return json.loads(_PLACEHOLDER.sub("0", read_text(node, path)))


def _plugin_types(content: Mapping[str, Any]) -> Iterator[str]:
    """The programs that a configuration names, with those to which they delegate."""
    for plugin in content.get("plugins", [content]):
        parts = (plugin, plugin.get("ipam", {}), plugin.get("delegate", {}))
        yield from dict.fromkeys(part["type"] for part in parts if part.get("type"))


def _wins(node: Node) -> Iterator[Finding]:
    wins, known = node.spec.config.wins, node.spec.facts.wins
    service = node.service(_WINS)
    if wins is None or known is None or service is None or service.failure or not service.is_running:
        yield say(_describe(_WINS, is_running(node, _WINS) or "nothing started it"))
        return
    path = dict(itertools.pairwise(words(service.command))).get("--config", _WINS_CONFIG)
    try:
        found = parse_yaml(node.read(path) or b"", path).data
    except ConfigError as error:
        yield say(f"wins cannot read its configuration: {error}")
        return
    settings: Mapping[str, Any] = found if isinstance(found, dict) else {}
    if (pipe := settings.get("listen", _WINS_PIPE)) != _WINS_PIPE:
        yield say(f"wins answers at {pipe}, and the wins in pods connects to {_WINS_PIPE}")
    listed = list((settings.get(known.white_list) or {}).get("processPaths") or ())
    if not listed:
        yield say("wins starts every program that a pod names, because it finds no list")
    if "wins.policy" not in node.spec.own_files:
        wanted = [rf"{node.spec.config.kubernetes.install_path}\{program}" for program in known.programs]
        if missing := [one for one in wanted if one.lower() not in map(str.lower, listed)]:
            yield say(f"wins does not start {some(missing)}")
        if others := [one for one in listed if one.lower() not in map(str.lower, wanted)]:
            yield say(f"wins also starts {some(others)}")


CHECKS: Final = (
    Check(
        "docker",
        "Docker runs, and starts pods as the config says",
        _docker,
        lambda spec: spec.config.runtime.docker is not None,
    ),
    Check(
        "handlers",
        "containerd has the handlers of isolated pods",
        _handlers,
        lambda spec: bool(spec.facts.hyper_v.builds) and spec.config.runtime.containerd is not None,
    ),
    Check(
        "services",
        "the services that the config adds are there and can run",
        _services,
        lambda spec: bool(_added_services(spec)),
    ),
    Check(
        "images",
        "a pod of each pulled image starts while no registry can be reached",
        _images,
        lambda spec: bool(_pulled(spec)),
    ),
    Check(
        "pod-network",
        "the network plugin finds its programs and its network",
        _pod_network,
        lambda spec: bool(spec.facts.cni_files) and spec.config.cni.plugin != "none",
    ),
    Check(
        "wins",
        "wins runs, and starts the programs of the config only",
        _wins,
        lambda spec: spec.config.wins is not None,
    ),
)
