"""The node's own parts: HostProcess and wins, kubelet's flags, and where things lie on the machine. Pure."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import known, minor, numbers, paths, stock_paths, table
from imagegen.judging import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.documents.yaml import YamlPath
    from imagegen.judging import RuleInput

# https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/
_GATE: Final = "WindowsHostProcessContainers"
# https://pkg.go.dev/time#ParseDuration
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"-?(?:{_DURATION_PART.pattern})+")
_HOURS: Final = {
    "ns": 1 / 3.6e12,
    "us": 1 / 3.6e9,
    "µs": 1 / 3.6e9,
    "ms": 1 / 3.6e6,
    "s": 1 / 3600,
    "m": 1 / 60,
    "h": 1.0,
}
_LONGEST_HOURS: Final = (2**63 - 1) / 3.6e12

# What kubelet's start script sets itself; a test holds this against the script.
OWN_FLAGS: Final = frozenset(
    {
        *("windows-service", "cert-dir", "config", "bootstrap-kubeconfig", "kubeconfig"),
        *("container-runtime-endpoint", "cgroups-per-qos", "enforce-node-allocatable", "resolv-conf"),
    }
)


@rule("host-process-kubernetes", ERROR, "Kubernetes must have HostProcess containers where something needs them")
def host_process_kubernetes(given: RuleInput) -> Iterator[Finding]:
    lack = _kubernetes_lacks(given)
    for path, who in _host_process_users(given) if lack else ():
        yield Finding(path, f"{who} needs HostProcess containers, and {lack[0]}", lack[1])


@rule("host-process-runtime", ERROR, "The runtime must have HostProcess containers where something needs them")
def host_process_runtime(given: RuleInput) -> Iterator[Finding]:
    lack = _runtime_lacks(given)
    for path, who in _host_process_users(given) if lack else ():
        yield Finding(path, f"{who} needs HostProcess containers, and {lack[0]}", lack[1])


def _host_process_users(given: RuleInput) -> Iterator[tuple[YamlPath, str]]:
    """What asks for HostProcess containers. The default of kube_proxy, which nobody wrote, asks for nothing."""
    if given.config.kube_proxy == "hostprocess" and ("kube_proxy",) in given.document.lines:
        yield ("kube_proxy",), "kube-proxy"
    plugin = table("cni")["plugins"][given.config.cni.plugin]
    if plugin["host_process"]:
        yield ("cni", "plugin"), plugin["title"]


def _kubernetes_lacks(given: RuleInput) -> tuple[str, ...]:
    """Why this Kubernetes has no HostProcess containers, and what to choose; nothing where it has them."""
    minors, gate = table("kubernetes")["minors"], given.config.kubernetes.feature_gates.get(_GATE)
    found = known(minors, given.config.kubernetes.version)
    since = next(name for name, row in minors.items() if row["host_process"] == "yes")
    if found is None:
        return ()
    if found.row["host_process"] == "no":
        return f"Kubernetes {found.minor} has none", f"choose Kubernetes {since} or later"
    if found.row["host_process"] == "gate" and not gate:
        asks = f"say {_GATE}: true under kubernetes.feature_gates, or choose Kubernetes {since} or later"
        return f"Kubernetes {found.minor} has them only behind a feature gate", asks
    if gate is False:
        return f"the feature gate {_GATE} is off", "leave the gate out"
    return ()


def _runtime_lacks(given: RuleInput) -> tuple[str, ...]:
    """The same, of the runtime."""
    lines = table("containerd")["lines"]
    since = next(name for name, row in lines.items() if row["host_process"])
    containerd = given.config.runtime.containerd
    if containerd is None:
        return "Docker has none", f"choose containerd {since} or later"
    found = known(lines, containerd.version)
    if found and not found.row["host_process"]:
        return f"containerd {found.minor} has none", f"choose containerd {since} or later"
    return ()


@rule(
    "kube-proxy-by-host-process",
    WARNING,
    "The node should be able to run kube-proxy the default way, in HostProcess containers",
)
def kube_proxy_by_host_process(given: RuleInput) -> Iterator[Finding]:
    """Where it is written, it asks for what is missing, and that is an error."""
    lack = _kubernetes_lacks(given) or _runtime_lacks(given)
    if lack and given.config.kube_proxy == "hostprocess" and ("kube_proxy",) not in given.document.lines:
        yield Finding(
            ("kube_proxy",),
            f"kube-proxy runs in HostProcess containers where nothing else is said, and {lack[0]}",
            "say kube_proxy: none, wins or service",
        )


@rule("wins-where-host-process-is-missing", ERROR, "wins must be used only on nodes without HostProcess containers")
def wins_where_host_process_is_missing(given: RuleInput) -> Iterator[Finding]:
    if (
        given.config.wins
        and known(table("kubernetes")["minors"], given.config.kubernetes.version)
        and not _kubernetes_lacks(given)
        and not _runtime_lacks(given)
    ):
        yield Finding(
            ("wins",),
            "HostProcess containers do on this node what wins did: it would be one more way in, and for nothing",
            "leave wins out, and choose kube_proxy: hostprocess",
        )


@rule("wins-and-signatures", ERROR, "wins and artifacts.signatures must not be used together")
def wins_and_signatures(given: RuleInput) -> Iterator[Finding]:
    if given.config.wins and given.config.artifacts.signatures:
        yield Finding(
            ("wins",),
            "wins runs on the machine what pods bring along, and nobody checks a signature of that",
            "leave out wins, or artifacts.signatures",
        )


@rule("kube-proxy-by-wins", ERROR, "kube_proxy: wins requires the section wins")
def kube_proxy_by_wins(given: RuleInput) -> Iterator[Finding]:
    if given.config.kube_proxy == "wins" and given.config.wins is None:
        yield Finding(
            ("kube_proxy",),
            "wins is to run kube-proxy, and the image has no wins",
            "add the section wins with its version, or choose hostprocess",
        )


@rule("kubelet-flag-of-imagegen", ERROR, "kubelet_flags must not set what imagegen sets itself")
def kubelet_flag_of_imagegen(given: RuleInput) -> Iterator[Finding]:
    for flag in given.config.kubernetes.kubelet_flags:
        path = ("kubernetes", "kubelet_flags", flag)
        if flag in OWN_FLAGS:
            yield Finding(
                path,
                f"kubelet's start script sets --{flag} itself, and the node depends on what it says",
                "leave it out",
            )
        elif flag == "feature-gates":
            yield Finding(
                path,
                "feature gates have a key of their own, which writes them as one list",
                "write them under kubernetes.feature_gates",
            )


@rule("kubelet-flag-known", ERROR, "kubelet of this Kubernetes must know each of kubelet_flags")
def kubelet_flag_known(given: RuleInput) -> Iterator[Finding]:
    """Of flags that the catalogue does not name nothing is said."""
    version, flags = minor(given.config.kubernetes.version), table("kubelet")["flags"]
    for flag in given.config.kubernetes.kubelet_flags:
        if flag in flags and numbers(version) > numbers(flags[flag]["last"]):
            yield Finding(
                ("kubernetes", "kubelet_flags", flag),
                f"kubelet has --{flag} up to {flags[flag]['last']} only, and {version} ends with an error",
                "leave it out",
            )


@rule("kubelet-flag-duration", ERROR, "A duration in kubelet_flags must be one that Go can hold")
def kubelet_flag_duration(given: RuleInput) -> Iterator[Finding]:
    """Into nanoseconds of 64 bits: kubelet ends of a longer one."""
    for flag, value in given.config.kubernetes.kubelet_flags.items():
        if _DURATION.fullmatch(value) is None:
            continue
        hours = sum(float(number) * _HOURS[unit] for number, unit in _DURATION_PART.findall(value))
        if hours > _LONGEST_HOURS:
            yield Finding(
                ("kubernetes", "kubelet_flags", flag),
                f"{value} is longer than Go's longest duration, and kubelet ends with an error",
                f"write at most {int(_LONGEST_HOURS)}h",
            )


@rule("feature-gate-known", ERROR, "kubelet of this Kubernetes must know the feature gate and accept its value")
def feature_gate_known(given: RuleInput) -> Iterator[Finding]:
    """Of gates that the catalogue does not name nothing is said."""
    gates, version = table("kubelet")["feature_gates"], minor(given.config.kubernetes.version)
    if known(table("kubernetes")["minors"], given.config.kubernetes.version) is None:
        return
    for gate, on in given.config.kubernetes.feature_gates.items():
        row, path = gates.get(gate), ("kubernetes", "feature_gates", gate)
        if row is None:
            continue
        first, last, locked = (numbers(row[key] or "") for key in ("first", "last", "locked"))
        ends = f"and kubelet {version} ends with `unrecognized feature gate`"
        if first and numbers(version) < first:
            yield Finding(
                path,
                f"there is no such gate before {row['first']}, {ends}",
                f"leave it out, or choose Kubernetes {row['first']} or later",
            )
        elif last and numbers(version) > last:
            yield Finding(path, f"there is no such gate after {row['last']}, {ends}", "leave it out")
        elif locked and not on and numbers(version) >= locked:
            yield Finding(
                path,
                f"it cannot be switched off from {row['locked']} on: kubelet {version} ends with an error",
                "leave it out",
            )


# They set every gate of their stage that has no key of its own, whatever the order.
_TOGGLES: Final = {"alpha": "AllAlpha", "beta": "AllBeta"}


@rule("feature-gate-needs", ERROR, "A feature gate that is on must have the gates that it needs")
def feature_gate_needs(given: RuleInput) -> Iterator[Finding]:
    """From 1.35 on kubelet checks it, and many gates are on by themselves."""
    said, version = given.config.kubernetes.feature_gates, minor(given.config.kubernetes.version)
    if not said:
        return
    missing: dict[str, list[str]] = {}
    for row in table("kubelet")["gate_needs"]:
        applies = numbers(row["first"]) <= numbers(version) <= numbers(row["last"] or version)
        if applies and _is_on(row["gate"], said, version) and not _is_on(row["needs"], said, version):
            missing.setdefault(row["needs"], []).append(row["gate"])
    for needed, gates in missing.items():
        ends = f"and kubelet {version} ends with an error"
        decides = _deciding_key(needed, said, version)
        if decides == needed:
            yield Finding(
                ("kubernetes", "feature_gates", needed),
                f"{' and '.join(gates)} {'are' if gates[1:] else 'is'} on and cannot be without it, {ends}",
                f"say {' and '.join(f'{gate}: false' for gate in gates)} too, or leave this out",
            )
            continue
        off = f"which {decides}: false switches off" if decides else "which is off where nothing is said"
        for gate in gates:
            key = _deciding_key(gate, said, version)
            subject, instead = ("it", "") if key == gate else (f"{gate} is on and", f" or {gate}: false")
            yield Finding(
                ("kubernetes", "feature_gates", key or decides),
                f"{subject} needs {needed}, {off}, {ends}",
                f"say {needed}: true{instead} too, or leave this out",
            )


def _is_on(gate: str, said: Mapping[str, bool], version: str) -> bool:
    if key := _deciding_key(gate, said, version):
        return said[key]
    since = table("kubelet")["gate_defaults"][gate]["on_since"]
    return since is not None and numbers(since) <= numbers(version)


def _deciding_key(gate: str, said: Mapping[str, bool], version: str) -> str:
    """The key that says whether a gate is on: its own, or that of all gates of its stage; empty for the default."""
    if gate in said:
        return gate
    stages = table("kubelet")["gate_defaults"][gate]["stages"]
    # Of minors that are newer than the catalogue, the newest stage is the best guess.
    stage = stages.get(version) or stages[max(stages, key=numbers)]
    toggle = _TOGGLES.get(stage, "")
    return toggle if toggle in said else ""


@rule("install-path-of-its-own", ERROR, "The install path must be a folder that nothing else uses")
def install_path_of_its_own(given: RuleInput) -> Iterator[Finding]:
    """Only SYSTEM and administrators reach it: around another folder it would lock others out."""
    folder = given.config.kubernetes.install_path
    layout = paths()
    taken = [place for name, place in layout.items() if name != "kubernetes"]
    stock = sorted({place for provider in given.providers for place in stock_paths(provider)})
    clash = next((place for place in taken if is_inside(folder, place) or is_inside(place, folder)), None)
    clash = clash or next((place for place in stock if is_inside(place, folder)), None)
    system = layout["system32"].rpartition("\\")[0]
    clash = clash or next((place for place in table("layout")["system_folders"] if is_inside(place, folder)), None)
    if clash or is_inside(folder, system):
        yield Finding(
            ("kubernetes", "install_path"),
            f"{folder} does not lie apart from {clash or system}, and each has rights of its own",
            f"choose a folder that is nothing else's, as {layout['kubernetes']}",
        )


def is_inside(inner: str, outer: str) -> bool:
    return f"{inner}\\".lower().startswith(f"{outer}\\".lower())


@rule("on-the-images-drive", ERROR, "Files of the image must be on drive C:")
def on_the_images_drive(given: RuleInput) -> Iterator[Finding]:
    for path, place in program_places(given):
        if not place.startswith("C:"):
            yield Finding(
                path, f"an image holds the drive C: alone, and {place[:2]} is each machine's own", "choose a path on C:"
            )


@rule("outlives-sealing", ERROR, "A path must not lie where sealing deletes")
def outlives_sealing(given: RuleInput) -> Iterator[Finding]:
    for path, place in program_places(given):
        for deleted in table("layout")["deleted_by_sealing"]:
            if lies_at(place, deleted):
                yield Finding(
                    path,
                    f"sealing the image deletes {deleted}, so nothing in it reaches a node",
                    "choose a path outside it",
                )


def lies_at(place: str, pattern: str) -> bool:
    """Whether a path is what the pattern names, or lies inside of it."""
    parts, patterns = place.lower().split("\\"), pattern.lower().split("\\")
    # Most patterns are plain words, and each would be compiled.
    return len(parts) >= len(patterns) and all(
        fnmatch.fnmatchcase(part, own) if "*" in own else part == own
        for part, own in zip(parts, patterns, strict=False)
    )


def program_places(given: RuleInput) -> list[tuple[YamlPath, str]]:
    """The paths on the machine that a config names."""
    return [
        (("kubernetes", "install_path"), given.config.kubernetes.install_path),
        *((("executables", index, "path"), item.path) for index, item in enumerate(given.config.executables)),
    ]


@rule("same-place-twice", ERROR, "Two programs must not have the same path")
def same_place_twice(given: RuleInput) -> Iterator[Finding]:
    places: list[tuple[YamlPath, str]] = [
        *((("executables", index, "path"), item.path) for index, item in enumerate(given.config.executables)),
        *(
            (("credential_providers", index, "name"), item.name)
            for index, item in enumerate(given.config.credential_providers)
        ),
    ]
    seen: set[str] = {file.lower() for file in _own_files(given)}
    for path, place in places:
        if place.lower() in seen:
            yield Finding(path, f"another program lies at {place} already", "give each its own")
        seen.add(place.lower())


def _own_files(given: RuleInput) -> Iterator[str]:
    """What imagegen itself puts into folders where there may be more."""
    folders = {**paths(), "kubernetes": given.config.kubernetes.install_path}
    for name, files in table("layout")["own_files"].items():
        yield from (f"{folders[name]}\\{file}" for file in files)


@rule("kubeadm-script-is-powershell", ERROR, "kubeadm_scripts must be PowerShell files")
def kubeadm_script_is_powershell(given: RuleInput) -> Iterator[Finding]:
    scripts = given.config.kubeadm_scripts
    for when, files in (("pre", scripts.pre), ("post", scripts.post)):
        for index, file in enumerate(files):
            if not file.lower().endswith(".ps1"):
                yield Finding(
                    ("kubeadm_scripts", when, index),
                    f"{file} is no PowerShell file, and nothing on the node would run it",
                    "name a file that ends with .ps1",
                )


@rule(
    "ansible-carries-roles", ERROR, "Roles of your own require provisioner: ansible, and their variables require roles"
)
def ansible_carries_roles(given: RuleInput) -> Iterator[Finding]:
    ansible = given.config.ansible
    if ansible and given.config.provisioner != "ansible":
        yield Finding(
            ("ansible",),
            "PowerShell carries the steps, and nothing would run these roles",
            "choose provisioner: ansible, or leave this out",
        )
    elif ansible and not ansible.before and not ansible.after:
        yield Finding(
            ("ansible",),
            "there is no role before or after the steps, so nothing reads this",
            "name a role under before or after, or leave this out",
        )
