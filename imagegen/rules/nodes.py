"""The rules for the node: HostProcess containers, wins, kubelet, SSH, storage, and paths on the machine. Pure."""

from __future__ import annotations

import ntpath
from collections.abc import Iterator
from typing import Final

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import find_row, minor, numbers, paths, stock_paths, table
from imagegen.catalog.products import find_product
from imagegen.config.checks import lies_at
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import YamlPath, parse_yaml
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


_POLICY: Final = ("wins", "policy")


@rule("wins-has-a-pipe", ERROR, "wins must have the named pipe that pods connect to")
def wins_has_a_pipe(given: RuleInput) -> Iterator[Finding]:
    wins, before = given.config.wins, table("wins")["before"]
    if wins and numbers(wins.version) >= numbers(before):
        yield Finding(
            ("wins", "version"),
            f"wins has no named pipe from {before} on, so it starts no program for pods, such as kube-proxy or flannel",
            f"choose a version before {before}",
        )


@rule("wins-has-programs", ERROR, "wins must have at least one program to start")
def wins_has_programs(given: RuleInput) -> Iterator[Finding]:
    """An empty list would allow every program."""
    config = given.config
    facts = next((spec.facts.wins for spec in given.specs.values()), None)
    if config.wins and not config.wins.policy and facts is not None and not facts.programs:
        yield Finding(
            ("wins",),
            f"with kube_proxy: {config.kube_proxy} and cni.plugin: {config.cni.plugin}, no program of imagegen needs "
            "wins",
            "leave wins out, or name your programs in wins.policy",
        )


@rule(
    "wins-policy",
    ERROR,
    "wins.policy must name the programs that pods may start",
    why="wins starts every program, as SYSTEM, if it finds no list",
)
def wins_policy(given: RuleInput) -> Iterator[Finding]:
    wins = given.config.wins
    spec = next(iter(given.specs.values()), None)
    file = spec.own_files.get("wins.policy") if spec else None
    if wins is None or file is None or spec is None or spec.facts.wins is None:
        return
    key = spec.facts.wins.white_list
    try:
        content = parse_yaml(file.data, str(wins.policy)).data
    except ConfigError as error:
        found = "; ".join(problem.message for problem in error.problems) or error.message
        yield Finding(_POLICY, f"{wins.policy} cannot be read: {found}", error.hint or "write it as YAML")
        return
    listed = content.get(key) if isinstance(content, dict) else None
    programs = listed.get("processPaths") if isinstance(listed, dict) else None
    if not isinstance(programs, list) or not programs:
        yield Finding(
            _POLICY,
            f"{wins.policy} has no list {key}.processPaths, without which wins {wins.version} starts every program",
            f"write {key}, and below it processPaths with at least one program",
        )
        return
    for program in programs:
        if not isinstance(program, str) or not ntpath.splitdrive(program)[0] or not ntpath.isabs(program):
            yield Finding(
                _POLICY,
                f"{wins.policy} has the program {program!r}, which is not an absolute path, so no pod can start it",
                'write its whole path, for example "C:\\\\k\\\\kube-proxy\\\\kube-proxy.exe"',
            )
    upgrade = content.get("upgrade")
    if spec.facts.wins.replaces_itself and (not isinstance(upgrade, dict) or upgrade.get("mode") != "none"):
        yield Finding(
            _POLICY,
            f"{wins.policy} lets wins {wins.version} replace its own program by another one",
            "write upgrade: {mode: none}",
        )
    pipe = table("wins")["pipe"]
    if content.get("listen", pipe) != pipe:
        yield Finding(
            _POLICY,
            f"{wins.policy} has the pipe {content['listen']!r}, but the wins in pods connects to {pipe}",
            "leave listen out",
        )


_KEYS_PLUGIN: Final = "SetUserSSHPublicKeysPlugin"


@rule("ssh-keys-plugin", WARNING, "A plugin of cloudbase-init should write the keys of the metadata for the SSH server")
def ssh_keys_plugin(given: RuleInput) -> Iterator[Finding]:
    """Only where the cloud's own list has it."""
    clouds = table("cloudbase-init")["clouds"]
    for provider in given.providers if given.config.ssh else ():
        listed = getattr(given.config.cloudbase_init.plugins, provider)
        usual = next((name for name in clouds[provider]["plugins"] if name.endswith(f".{_KEYS_PLUGIN}")), None)
        if listed is not None and usual is not None and usual not in listed:
            yield Finding(
                ("cloudbase_init", "plugins", provider),
                f"without {_KEYS_PLUGIN}, only keys of the user data log in to the SSH server",
                f"add {usual}",
            )


@rule("ssh-version-known", ERROR, "An archive of Win32-OpenSSH must have a known address")
def ssh_version_known(given: RuleInput) -> Iterator[Finding]:
    ssh, known = given.config.ssh, table("openssh")["tags"]
    if ssh is None or ssh.source != "zip" or not ssh.version or "ssh_source_url" in given.config.overrides:
        return
    if not any(ssh.version in (version, version.partition("p")[0]) for version in known):
        yield Finding(
            ("ssh", "version"),
            f"imagegen knows no public archive of Win32-OpenSSH {ssh.version}",
            f"set overrides.ssh_source_url, or choose one of {', '.join(known)}",
        )


@rule("ssh-source-of-zip", ERROR, "overrides.ssh_source_url requires ssh.source: zip")
def ssh_source_of_zip(given: RuleInput) -> Iterator[Finding]:
    ssh = given.config.ssh
    if ssh and ssh.source != "zip" and "ssh_source_url" in given.config.overrides:
        yield Finding(
            ("overrides", "ssh_source_url"),
            "the server comes from Windows itself, so this archive would not be used",
            "write ssh.source: zip, or leave it out",
        )


@rule(
    "ssh-from-windows-update",
    WARNING,
    "A builder that reaches only your own hosts should take the SSH server from a zip",
)
def ssh_from_windows_update(given: RuleInput) -> Iterator[Finding]:
    ssh, policy = given.config.ssh, given.config.artifacts
    is_closed = policy.mirror or policy.allowed_hosts
    release = given.config.windows.release
    if ssh and ssh.source == "capability" and is_closed and release not in table("openssh")["installed"]:
        yield Finding(
            ("ssh",),
            f"Windows Server {release} gets its SSH server from Windows Update, not from your hosts",
            "write source: zip",
        )


_ANOTHER_FOLDER: Final = "choose another folder, for example C:\\tools"


@rule("not-the-systems-own", ERROR, "Programs must not be in folders of Windows")
def not_the_systems_own(given: RuleInput) -> Iterator[Finding]:
    layout, of_clouds = table("layout"), table("machines")["systems_own"]
    systems_own = [*layout["systems_own"], *(path for cloud in given.providers for path in of_clouds[cloud]["paths"])]
    for path, place in program_places(given):
        own = next((owned for owned in systems_own if lies_at(place, owned)), None)
        own = own or next((folder for folder in layout["system_folders"] if place.lower() == folder.lower()), None)
        # The rule install-path-of-its-own reports an install path in these folders.
        is_reported = path[0] != "executables" and own in (*layout["system_folders"], "C:\\Windows")
        if own and not is_reported:
            yield Finding(
                path,
                f"{own} belongs to Windows, which may change, hide or delete its files",
                _ANOTHER_FOLDER,
            )


# Programs of other software may be in these folders of imagegen.
_SHARED: Final = ("kubernetes", "containerd", "cni_bin")


@rule("not-the-images-own", ERROR, "Programs must not be in folders whose content imagegen or the node makes")
def not_the_images_own(given: RuleInput) -> Iterator[Finding]:
    """The rule same-place-twice reports imagegen's own files, and not-the-systems-own those of Windows."""
    layout = {**paths(), "kubernetes": given.config.kubernetes.install_path}
    inside = table("layout")["own_folders"].items()
    folders = [folder for folder in layout.values() if not is_inside(folder, "C:\\Windows")]
    closed = [folder for name, folder in layout.items() if name not in _SHARED and folder in folders]
    closed += [f"{layout[name]}\\{folder}" for name, own in inside for folder in own]
    places = {path: place for path, place in program_places(given) if path[0] == "executables"}
    for path, place in places.items():
        if place in table("layout")["system_folders"]:
            continue
        others = [other for at, other in places.items() if at != path and other.lower() != place.lower()]
        if owned := next((folder for folder in closed if is_inside(place, folder)), None):
            yield Finding(path, f"the content of {owned} is made by imagegen or by the node", _ANOTHER_FOLDER)
        elif inner := next((one for one in [*folders, *others] if is_inside(one, place)), None):
            same = inner.lower() == place.lower()
            yield Finding(path, f"{place} is a folder{'' if same else f', which has {inner}'}", "add a file name")


@rule("name-of-its-own", ERROR, "An image must not have the name of a folder that imagegen uses below --out")
def name_of_its_own(given: RuleInput) -> Iterator[Finding]:
    if given.config.name in table("layout")["output_folders"]:
        yield Finding(
            ("name",),
            f"imagegen uses the folder {given.config.name} below --out",
            f"choose another name, for example {given.config.name}-image",
        )


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


_FLAGS: Final = ("image-credential-provider-bin-dir", "image-credential-provider-config")


@rule("credential-providers-kubernetes", ERROR, "kubelet of this Kubernetes must support credential providers")
def credential_providers_kubernetes(given: RuleInput) -> Iterator[Finding]:
    first, version = table("kubelet")["credential_providers"][0]["first"], minor(given.config.kubernetes.version)
    if given.config.credential_providers and numbers(version) < numbers(first):
        yield Finding(
            ("credential_providers",),
            f"kubelet supports credential providers from Kubernetes {first} on, and this is {version}",
            "leave credential_providers out",
        )


@rule(
    "credential-providers-enabled", ERROR, "The feature gate of credential providers must not be disabled beside them"
)
def credential_providers_enabled(given: RuleInput) -> Iterator[Finding]:
    gates = {row["gate"] for row in table("kubelet")["credential_providers"]} - {None}
    for gate in sorted(gates):
        if given.config.credential_providers and given.config.kubernetes.feature_gates.get(gate) is False:
            yield Finding(
                ("kubernetes", "feature_gates", gate),
                f"without {gate}, kubelet ignores credential_providers",
                "leave the feature gate out",
            )


@rule("credential-provider-flags", ERROR, "kubelet_flags must not replace the flags of credential_providers")
def credential_provider_flags(given: RuleInput) -> Iterator[Finding]:
    for flag in _FLAGS:
        if given.config.credential_providers and flag in given.config.kubernetes.kubelet_flags:
            yield Finding(
                ("kubernetes", "kubelet_flags", flag),
                f"credential_providers sets --{flag}, and kubelet would use only this value",
                "leave the flag out, or leave credential_providers out",
            )
