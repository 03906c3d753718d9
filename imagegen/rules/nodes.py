"""The rules for HostProcess containers, wins, kubelet and paths on the machine. Pure."""

from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import find_row, paths, stock_paths, table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule

# https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/
_GATE: Final = "WindowsHostProcessContainers"


HOST_PROCESS: Final = (
    rule(
        "host-process-kubernetes",
        ERROR,
        "Kubernetes must support HostProcess containers where something requires them",
    )(lambda given: _find_host_process_users(given, _kubernetes_lacks(given.config))),
    rule(
        "host-process-runtime",
        ERROR,
        "The runtime must support HostProcess containers where something requires them",
    )(lambda given: _find_host_process_users(given, _runtime_lacks(given.config))),
)


def _find_host_process_users(given: RuleInput, lack: tuple[str, ...]) -> Iterator[Finding]:
    """Find settings that require HostProcess containers. The default of kube_proxy does not require them."""
    if lack and given.config.kube_proxy == "hostprocess" and ("kube_proxy",) in given.document.lines:
        yield Finding(("kube_proxy",), f"kube-proxy requires HostProcess containers, but {lack[0]}", lack[1])
    cni = given.config.cni
    plugin = table("cni")["plugins"][cni.plugin]
    if lack and (cni.mode or plugin["default_mode"]) in plugin["host_process"]:
        others = [f"cni.mode: {mode}" for mode in plugin["modes"] if mode not in plugin["host_process"]]
        message = f"{plugin['title']} requires HostProcess containers, but {lack[0]}"
        yield Finding(("cni", "plugin"), message, " or ".join([lack[1], *others]))


def find_lack_of_host_process(config: ImageConfig) -> tuple[str, ...]:
    """Why this node has no HostProcess containers, and a hint; empty where it has them."""
    return _kubernetes_lacks(config) or _runtime_lacks(config)


def _kubernetes_lacks(config: ImageConfig) -> tuple[str, ...]:
    """Why this Kubernetes has no HostProcess containers, and a hint; empty where it has them."""
    minors, gate = table("kubernetes")["minors"], config.kubernetes.feature_gates.get(_GATE)
    found = find_row(minors, config.kubernetes.version)
    since = next(name for name, row in minors.items() if row["host_process"] == "yes")
    if found is None:
        return ()
    if found.row["host_process"] == "no":
        return f"Kubernetes {found.minor} does not support them", f"choose Kubernetes {since} or later"
    if found.row["host_process"] == "gate" and not gate:
        return (
            f"Kubernetes {found.minor} supports them only behind a feature gate",
            f"write {_GATE}: true to kubernetes.feature_gates, or choose Kubernetes {since} or later",
        )
    if gate is False:
        return f"the feature gate {_GATE} is off", "leave the feature gate out"
    return ()


def _runtime_lacks(config: ImageConfig) -> tuple[str, ...]:
    """Why this runtime has no HostProcess containers, and a hint; empty where it has them."""
    lines = table("containerd")["lines"]
    since = next(name for name, row in lines.items() if row["host_process"])
    containerd = config.runtime.containerd
    if containerd is None:
        return "Docker does not support them", f"choose containerd {since} or later"
    found = find_row(lines, containerd.version)
    if found and not found.row["host_process"]:
        return f"containerd {found.minor} does not support them", f"choose containerd {since} or later"
    return ()


@rule(
    "kube-proxy-by-host-process",
    WARNING,
    "The node should support HostProcess containers, in which kube-proxy runs by default",
)
def kube_proxy_by_host_process(given: RuleInput) -> Iterator[Finding]:
    """Where the config sets kube_proxy, another rule reports it as an error."""
    lack = find_lack_of_host_process(given.config)
    if lack and given.config.kube_proxy == "hostprocess" and ("kube_proxy",) not in given.document.lines:
        yield Finding(
            ("kube_proxy",),
            f"kube-proxy runs in HostProcess containers by default, but {lack[0]}",
            "write kube_proxy: none, wins or service",
        )


WINS: Final = (
    simple_rule(
        "wins-where-host-process-is-missing",
        ERROR,
        "wins must be used only on nodes without HostProcess containers",
        lambda given: (
            given.config.wins
            and find_row(table("kubernetes")["minors"], given.config.kubernetes.version)
            and not _kubernetes_lacks(given.config)
            and not _runtime_lacks(given.config)
        ),
        Finding(
            ("wins",),
            "the node supports HostProcess containers, so wins only adds a privileged service",
            "leave wins out, and write kube_proxy: hostprocess",
        ),
    ),
    simple_rule(
        "wins-and-signatures",
        ERROR,
        "wins and artifacts.signatures must not be used together",
        lambda given: given.config.wins and given.config.artifacts.signatures,
        Finding(
            ("wins",),
            "wins runs programs from pods on the host without checking their signatures",
            "leave out wins or artifacts.signatures",
        ),
    ),
    simple_rule(
        "kube-proxy-by-wins",
        ERROR,
        "kube_proxy: wins requires the section wins",
        lambda given: given.config.kube_proxy == "wins" and given.config.wins is None,
        Finding(
            ("kube_proxy",),
            "wins would run kube-proxy, but the image has no wins",
            "add the section wins with a version, or write hostprocess",
        ),
    ),
)


@rule("install-path-of-its-own", ERROR, "The install path must be a folder that nothing else uses")
def install_path_of_its_own(given: RuleInput) -> Iterator[Finding]:
    """Only SYSTEM and administrators have access to it, which would lock out users of another folder."""
    folder, layout = given.config.kubernetes.install_path, paths()
    taken = [place for name, place in layout.items() if name != "kubernetes"]
    stock = sorted({place for provider in given.providers for place in stock_paths(provider)})
    system = layout["system32"].rpartition("\\")[0]
    overlapping = [
        *(place for place in taken if is_inside(folder, place) or is_inside(place, folder)),
        *(place for place in [*stock, *table("layout")["system_folders"]] if is_inside(place, folder)),
        *([system] if is_inside(folder, system) else []),
    ]
    if overlapping:
        yield Finding(
            ("kubernetes", "install_path"),
            f"{folder} overlaps with {overlapping[0]}, and their permissions differ",
            f"choose another folder, for example {layout['kubernetes']}",
        )


def is_inside(inner: str, outer: str) -> bool:
    return f"{inner}\\".lower().startswith(f"{outer}\\".lower())


def program_places(given: RuleInput) -> list[tuple[YamlPath, str]]:
    """The paths on the machine that a config sets."""
    return [
        (("kubernetes", "install_path"), given.config.kubernetes.install_path),
        *((("executables", index, "path"), item.path) for index, item in enumerate(given.config.executables)),
    ]


@rule("same-place-twice", ERROR, "Two programs must not have the same path")
def same_place_twice(given: RuleInput) -> Iterator[Finding]:
    places: list[tuple[YamlPath, str]] = [
        *(item for item in program_places(given) if item[0][0] == "executables"),
        *(
            (("credential_providers", index, "name"), provider.name)
            for index, provider in enumerate(given.config.credential_providers)
        ),
    ]
    # imagegen's own files in folders that may have other files.
    folders = {**paths(), "kubernetes": given.config.kubernetes.install_path}
    own_files = table("layout")["own_files"].items()
    seen = {f"{folders[name]}\\{file}".lower() for name, files in own_files for file in files}
    for path, place in places:
        if place.lower() in seen:
            yield Finding(path, f"another program already has the path {place}", "choose another path")
        seen.add(place.lower())


@rule(
    "ansible-carries-roles", ERROR, "Roles of your own require provisioner: ansible, and their variables require roles"
)
def ansible_carries_roles(given: RuleInput) -> Iterator[Finding]:
    ansible = given.config.ansible
    if ansible and given.config.provisioner != "ansible":
        yield Finding(
            ("ansible",),
            "the provisioner is not Ansible, so nothing would run these roles",
            "write provisioner: ansible, or leave the section out",
        )
    elif ansible and not ansible.before and not ansible.after:
        yield Finding(
            ("ansible",),
            "there is no role before or after the steps, so nothing reads the section",
            "write a role to before or after, or leave the section out",
        )
