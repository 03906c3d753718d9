"""The rules for HostProcess containers, wins, kubelet and paths on the machine. Pure."""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Final

from imagegen.catalog.facts import find_row, minor, numbers, paths, stock_paths, table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule

# https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/
_GATE: Final = "WindowsHostProcessContainers"
# https://pkg.go.dev/time#ParseDuration
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"-?(?:{_DURATION_PART.pattern})+")
_NANOSECONDS: Final = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}
_MOST_NANOSECONDS: Final = float(2**63 - 1)

# The flags that kubelet's start script sets; a test compares them with the script.
OWN_FLAGS: Final = frozenset(
    {
        *("windows-service", "cert-dir", "config", "bootstrap-kubeconfig", "kubeconfig"),
        *("container-runtime-endpoint", "cgroups-per-qos", "enforce-node-allocatable", "resolv-conf"),
        "volume-plugin-dir",
    }
)


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


@rule("kubelet-flag-of-imagegen", ERROR, "kubelet_flags must not set what imagegen sets itself")
def kubelet_flag_of_imagegen(given: RuleInput) -> Iterator[Finding]:
    for flag in given.config.kubernetes.kubelet_flags:
        path = ("kubernetes", "kubelet_flags", flag)
        if flag in OWN_FLAGS:
            yield Finding(
                path,
                f"kubelet's start script sets --{flag} itself, and the node depends on that value",
                "leave it out",
            )
        elif flag == "feature-gates":
            yield Finding(
                path,
                "feature gates have their own key",
                "write them under kubernetes.feature_gates",
            )


@rule(
    "kubelet-flag-of-one-node",
    ERROR,
    "kubelet_flags must not set a name or address: each node has its own",
    why="the flags are part of the image, and every node that starts from it has them",
)
def kubelet_flag_of_one_node(given: RuleInput) -> list[Finding]:
    flags = given.config.kubernetes.kubelet_flags
    return [
        Finding(
            ("kubernetes", "kubelet_flags", flag),
            f"every node of this image would have --{flag}={flags[flag]}",
            "write it in the user data, under nodeRegistration: docs/operator-guide.md, Name and address of a node",
        )
        for flag in ("hostname-override", "node-ip", "provider-id")
        # An address of zeros only says which family kubelet prefers.
        if flag in flags and flags[flag].strip("0.:")
    ]


@rule("kubelet-flag-known", ERROR, "kubelet of this Kubernetes must know each of kubelet_flags")
def kubelet_flag_known(given: RuleInput) -> list[Finding]:
    """Flags that are not in the catalogue are not checked."""
    version, flags = minor(given.config.kubernetes.version), table("kubelet")["flags"]
    return [
        Finding(
            ("kubernetes", "kubelet_flags", flag),
            f"kubelet {version} exits with an error: --{flag} exists only up to {flags[flag]['last']}",
            "leave it out",
        )
        for flag in given.config.kubernetes.kubelet_flags
        if flag in flags and numbers(version) > numbers(flags[flag]["last"])
    ]


@rule("kubelet-flag-duration", ERROR, "A duration in kubelet_flags must not exceed the maximum of Go")
def kubelet_flag_duration(given: RuleInput) -> Iterator[Finding]:
    """Go stores nanoseconds in 64 bits, and kubelet exits with an error for longer ones."""
    for flag, value in given.config.kubernetes.kubelet_flags.items():
        duration = sum(float(number) * _NANOSECONDS[unit] for number, unit in _DURATION_PART.findall(value))
        if _DURATION.fullmatch(value) and duration > _MOST_NANOSECONDS:
            yield Finding(
                ("kubernetes", "kubelet_flags", flag),
                f"{value} exceeds Go's maximum duration, and kubelet exits with an error",
                f"write at most {int(_MOST_NANOSECONDS / _NANOSECONDS['h'])}h",
            )


@rule("feature-gate-known", ERROR, "kubelet of this Kubernetes must know the feature gate and accept its value")
def feature_gate_known(given: RuleInput) -> Iterator[Finding]:
    """Feature gates that are not in the catalogue are not checked."""
    gates, version = table("kubelet")["feature_gates"], minor(given.config.kubernetes.version)
    if find_row(table("kubernetes")["minors"], given.config.kubernetes.version) is None:
        return
    for gate, on in given.config.kubernetes.feature_gates.items():
        row, path = gates.get(gate), ("kubernetes", "feature_gates", gate)
        if row is None:
            continue
        first, last, locked = (numbers(row[key] or "") for key in ("first", "last", "locked"))
        exits = f"and kubelet {version} exits with `unrecognized feature gate`"
        if first and numbers(version) < first:
            yield Finding(
                path,
                f"{gate} does not exist before {row['first']}, {exits}",
                f"leave it out, or choose Kubernetes {row['first']} or later",
            )
        elif last and numbers(version) > last:
            yield Finding(path, f"{gate} does not exist after {row['last']}, {exits}", "leave it out")
        elif locked and not on and numbers(version) >= locked:
            yield Finding(
                path,
                f"{gate} cannot be disabled from {row['locked']} on: kubelet {version} exits with an error",
                "leave it out",
            )


# These set every feature gate of their stage that has no key of its own, in any order.
_TOGGLES: Final = {"alpha": "AllAlpha", "beta": "AllBeta"}


@rule("feature-gate-needs", ERROR, "An enabled feature gate requires the feature gates on which it depends")
def feature_gate_needs(given: RuleInput) -> Iterator[Finding]:
    """kubelet checks it from 1.35 on, and enables many feature gates by default."""
    gates, version = given.config.kubernetes.feature_gates, minor(given.config.kubernetes.version)
    if not gates:
        return
    missing: dict[str, list[str]] = {}
    for row in table("kubelet")["gate_needs"]:
        applies = numbers(row["first"]) <= numbers(version) <= numbers(row["last"] or version)
        if applies and _is_on(row["gate"], gates, version) and not _is_on(row["needs"], gates, version):
            missing.setdefault(row["needs"], []).append(row["gate"])
    for needed, dependents in missing.items():
        exits = f"and kubelet {version} exits with an error"
        decides = _deciding_key(needed, gates, version)
        if decides == needed:
            yield Finding(
                ("kubernetes", "feature_gates", needed),
                f"{' and '.join(dependents)} {'require' if dependents[1:] else 'requires'} {needed}, "
                f"which is false, {exits}",
                f"write {' and '.join(f'{gate}: false' for gate in dependents)} too, or leave {needed} out",
            )
            continue
        off = f"which {decides}: false disables" if decides else "which is disabled by default"
        for gate in dependents:
            key = _deciding_key(gate, gates, version)
            instead = "" if key == gate else f" or {gate}: false"
            yield Finding(
                ("kubernetes", "feature_gates", key or decides),
                f"{gate}{'' if key == gate else ' is enabled and'} requires {needed}, {off}, {exits}",
                f"write {needed}: true{instead} too, or leave {key or decides} out",
            )


def _is_on(gate: str, gates: Mapping[str, bool], version: str) -> bool:
    if key := _deciding_key(gate, gates, version):
        return gates[key]
    since = table("kubelet")["gate_defaults"][gate]["on_since"]
    return since is not None and numbers(since) <= numbers(version)


def _deciding_key(gate: str, gates: Mapping[str, bool], version: str) -> str:
    """The key that enables or disables a gate: its own, or that of its stage; empty where the default applies."""
    if gate in gates:
        return gate
    stages = table("kubelet")["gate_defaults"][gate]["stages"]
    # For minors that are newer than the catalogue, the newest known stage is the best guess.
    toggle = _TOGGLES.get(stages.get(version) or stages[max(stages, key=numbers)], "")
    return toggle if toggle in gates else ""


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


@rule("on-the-images-drive", ERROR, "Files of the image must be on drive C:")
def on_the_images_drive(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            path,
            f"an image contains only drive C:, and {place[:2]} would differ on each machine",
            "choose a path on C:",
        )
        for path, place in program_places(given)
        if not place.startswith("C:")
    ]


@rule("outlives-sealing", ERROR, "A path must not be in a folder that sealing deletes")
def outlives_sealing(given: RuleInput) -> list[Finding]:
    return [
        Finding(path, f"sealing the image deletes {deleted}", "choose a path outside this folder")
        for path, place in program_places(given)
        for deleted in table("layout")["deleted_by_sealing"]
        if lies_at(place, deleted)
    ]


def lies_at(place: str, pattern: str) -> bool:
    """Whether a path matches the pattern, or is inside a folder that matches it."""
    parts, patterns = place.lower().split("\\"), pattern.lower().split("\\")
    # Most patterns are plain words, and each would be compiled.
    return len(parts) >= len(patterns) and all(
        fnmatch.fnmatchcase(part, own) if "*" in own else part == own
        for part, own in zip(parts, patterns, strict=False)
    )


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
    own = [(name, file) for name, files in table("layout")["own_files"].items() for file in files]
    if places:
        own += [item for step in given.steps().values() for item in step.own_files]
    seen = {f"{folders[name]}\\{file}".lower() for name, file in own if name in folders}
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
