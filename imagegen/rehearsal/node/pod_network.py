"""The network of pods on the model machine, as the container runtime and kubelet see it.

containerd reads the first file, by name, of the folder of CNI configurations (github.com/containerd/go-cni, opts.go).
Without a configuration it says that the network is not ready, and kubelet that the node is not. The programs are looked
for only when a pod starts (containernetworking/cni, pkg/invoke/find.go).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.docker_engine import DOCKER, read_cri_dockerd
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

# What containerd takes if its configuration names none (internal/cri/config/config_windows.go).
_DEFAULT_BIN = r"C:\Program Files\containerd\cni\bin"
_DEFAULT_CONF = r"C:\Program Files\containerd\cni\conf"
_ARGUMENTS_FILE = re.compile(r"-ArgumentsFile (\S+)")
_KUBELET = "kubelet"
_SECTIONS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_ENDINGS = (".conf", ".conflist", ".json")
# containernetworking/cni, pkg/utils/utils.go.
_NETWORK_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


class PodNetworkError(Exception):
    """The network of pods cannot be used, in the words of containerd or of a plugin."""


@dataclasses.dataclass(frozen=True)
class Folders:
    """Where the runtime looks for the programs of plugins, and for their configurations."""

    programs: tuple[str, ...]
    configurations: str


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The configuration that the runtime uses: its plugins in their order, each as the plugin gets it."""

    file: str
    name: str
    plugins: tuple[dict[str, Any], ...]


def find_unready(machine: Machine) -> str:
    """Why kubelet says that the node is not ready. Empty if it is."""
    try:
        read_configuration(machine, find_folders(machine))
    except (PodNetworkError, RefusedByWindows) as error:
        return (
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network "
            f"plugin returns error: {error}"
        )
    return ""


def find_folders(machine: Machine) -> Folders:
    """The folders of who starts pods: containerd, cri-dockerd, or kubelet itself with Docker."""
    if machine.services.exists(DOCKER):
        found = read_cri_dockerd(machine)
        flags = found.flags if found else _read_kubelet_flags(machine)
        if flags.get("network-plugin") != "cni":
            raise PodNetworkError("no network plugin is configured")
        return Folders((flags.get("cni-bin-dir", ""),), flags.get("cni-conf-dir", ""))
    if not machine.services.is_running("containerd"):
        raise PodNetworkError("the container runtime is down")
    following = dict(itertools.pairwise(words(machine.services.command("containerd"))))
    config = tomllib.loads(machine.files.read(following.get("--config", "")).decode())
    plugins = config.get("plugins", {})
    cni: dict[str, Any] = next((plugins[name]["cni"] for name in _SECTIONS if "cni" in plugins.get(name, {})), {})
    # Only containerd 2.1 and later know the list, and it counts there.
    programs = cni.get("bin_dirs") or [cni.get("bin_dir", _DEFAULT_BIN)]
    return Folders(tuple(programs), cni.get("conf_dir", _DEFAULT_CONF))


def _read_kubelet_flags(machine: Machine) -> dict[str, str]:
    """The flags in the file that kubelet's script reads."""
    parameters = machine.registry.text(rf"{machine.services.key(_KUBELET)}\Parameters", "AppParameters") or ""
    file = _ARGUMENTS_FILE.search(f"{machine.services.command(_KUBELET)} {parameters}")
    lines = machine.files.read(file[1]).decode().split() if file else []
    return dict(line.removeprefix("--").split("=", 1) for line in lines if "=" in line)


def read_configuration(machine: Machine, folders: Folders) -> Configuration:
    """The first configuration by name. If it cannot be read, none of the others counts."""
    folder = folders.configurations
    names = machine.files.names(folder) if machine.files.is_folder(folder) else []
    files = sorted(name for name in names if name.lower().endswith(_ENDINGS))
    if not files:
        raise PodNetworkError("cni plugin not initialized")
    path = rf"{folder}\{files[0]}"
    try:
        content = json.loads(machine.files.read(path).decode())
        plugins = content["plugins"] if path.endswith(".conflist") else [content]
        return _checked(path, content, plugins)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PodNetworkError(f"cni config load failed: failed to load CNI config file {path}: {error}") from error


def _checked(path: str, content: dict[str, Any], plugins: list[dict[str, Any]]) -> Configuration:
    name, version = content["name"], content.get("cniVersion", "0.1.0")
    if not _NETWORK_NAME.fullmatch(name):
        raise ValueError(f"the network has the name {name!r}")
    if version not in _VERSIONS:
        raise ValueError(f"unsupported CNI version {version!r}")
    if not plugins:
        raise ValueError("it has no plugins")
    if not all(plugin["type"] for plugin in plugins):
        raise ValueError("a plugin has no type")
    return Configuration(path, name, tuple({**plugin, "name": name, "cniVersion": version} for plugin in plugins))
