"""What a section of the config, judged alone, must not be: the network plugin, kubelet, containerd and paths. Pure."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import InvalidValue
from imagegen.catalog.facts import find_row, is_overlay, limit_of, minor, numbers, table
from imagegen.steps.resource import Fault, refuse

if TYPE_CHECKING:
    from imagegen.config.node import Cni, Containerd, Kubernetes

# Enough for a subfolder and the name of a program.
_ROOM_IN_A_FOLDER: Final = 60
_SHORT_NAME: Final = re.compile(r"~[0-9]")

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
_FLAGS_OF_ONE_NODE: Final = ("hostname-override", "node-ip", "provider-id")
# These set every feature gate of their stage that has no key of its own, in any order.
_TOGGLES: Final = {"alpha": "AllAlpha", "beta": "AllBeta"}

# Parsing a TOML key with hundreds of parts takes seconds.
_LONGEST_LINE: Final = 500
_OLD_CRI: Final = "io.containerd.grpc.v1.cri"
_IMAGES: Final = "io.containerd.cri.v1.images"
_RUNTIME: Final = "io.containerd.cri.v1.runtime"
# The keys that imagegen sets, by the schema of the config. In schema 2 an imported file replaces a plugin's whole
# section (https://github.com/containerd/containerd/pull/9982), so imagegen owns the section itself.
_ROOT_KEYS: Final = ("version", "imports", "root", "state")
_OWN_KEYS: Final[dict[int, tuple[tuple[str, ...], ...]]] = {
    2: (("plugins", _OLD_CRI),),
    3: (
        ("plugins", _IMAGES, "discard_unpacked_layers"),
        ("plugins", _IMAGES, "image_pull_progress_timeout"),
        ("plugins", _IMAGES, "max_concurrent_downloads"),
        ("plugins", _IMAGES, "pinned_images", "sandbox"),
        ("plugins", _IMAGES, "registry", "config_path"),
        # The older form: containerd rejects it together with config_path, and the node has no CRI.
        ("plugins", _IMAGES, "registry", "mirrors"),
        ("plugins", _RUNTIME, "cni", "bin_dir"),
        ("plugins", _RUNTIME, "cni", "bin_dirs"),
        ("plugins", _RUNTIME, "cni", "conf_dir"),
    ),
}
_MIRRORS: Final = "runtime.containerd.registry_mirrors"
# The key of the config to use instead, by the key in containerd's config.
_INSTEAD: Final = {
    **{"sandbox": "kubernetes.pause_image", "sandbox_image": "kubernetes.pause_image"},
    **{"config_path": _MIRRORS, "mirrors": _MIRRORS, "registry": _MIRRORS},
    **{
        name: f"runtime.containerd.{name}"
        for name in ("discard_unpacked_layers", "image_pull_progress_timeout", "max_concurrent_downloads")
    },
}
# The CRI plugins by schema, and their names in other schemas.
_PLUGIN_NAMES: Final = {2: (_OLD_CRI,), 3: (_IMAGES, _RUNTIME)}
_OTHER_NAMES: Final = {2: (_IMAGES, _RUNTIME, "cri"), 3: ("cri",)}
# kubelet finds no runtime if one of these is disabled.
_CRI_PLUGINS: Final = (_OLD_CRI, _IMAGES, _RUNTIME, "cri")
# The named pipe in kubelet's start script, and the one of ttrpc.
_LISTENERS: Final = (("grpc", "address"), ("ttrpc", "address"))


def check_once(items: list[str]) -> list[str]:
    """Check that a list has no URL twice. A final slash makes no difference."""
    plain = [item.rstrip("/") for item in items]
    repeated = [at for at, item in enumerate(plain) if item in plain[:at]]
    hint = "leave one out"
    refuse(
        "list",
        [Fault(True, (at,), f"{items[at]} is listed above, with or without a final slash", hint) for at in repeated],
    )
    return items


def check_file_name(text: str) -> str:
    """Check that no part of a path has the name of a device. Windows ignores blanks before the dot."""
    for part in re.split(r"[\\/]", text):
        if part.partition(".")[0].rstrip(" ").lower() in table("layout")["device_names"]:
            raise InvalidValue(f"{part} is a device of Windows, with any extension", "choose another name")
    return text


def check_program(place: str) -> str:
    """Check the path of a program on the machine."""
    return _check_place(place, 0)


def check_program_folder(place: str) -> str:
    """Check a folder of programs on the machine."""
    return _check_place(place, _ROOM_IN_A_FOLDER)


def _check_place(place: str, kept: int) -> str:
    whole, part, parts = limit_of("windows_path"), limit_of("windows_part"), place.split("\\")
    most = whole["max"] - kept
    deleted = next((item for item in table("layout")["deleted_by_sealing"] if lies_at(place, item)), "")
    short = next((name for name in parts if _SHORT_NAME.search(name)), "")
    longest = next((name for name in parts if len(name) > part["max"]), "")
    room = f", and {kept} are reserved for files in the folder" if kept else ""
    faults = (
        (
            not place.startswith("C:"),
            f"an image contains only drive C:, and {place[:2]} would differ on each machine",
            "choose a path on C:",
        ),
        (deleted, f"sealing the image deletes {deleted}", "choose a path outside this folder"),
        (
            short,
            f"{short} has the form of a short name (8.3), which may lead to a different folder in each image",
            "write the long name",
        ),
        (
            len(place) > most,
            f"it has {len(place)} characters: {whole['reason']}{room}",
            f"choose a path with at most {most} characters",
        ),
        (longest, f"{longest[:20]}… has {len(longest)} characters: {part['reason']}", "choose a shorter name"),
    )
    for holds, message, hint in faults:
        if holds:
            raise InvalidValue(message, hint)
    return check_file_name(place)


def lies_at(place: str, pattern: str) -> bool:
    """Whether a path matches the pattern, or is inside a folder that matches it."""
    parts, patterns = place.lower().split("\\"), pattern.lower().split("\\")
    # Most patterns are plain words, and each would be compiled.
    return len(parts) >= len(patterns) and all(
        fnmatch.fnmatchcase(part, own) if "*" in own else part == own
        for part, own in zip(parts, patterns, strict=False)
    )


def find_cni_faults(cni: Cni) -> Iterator[Fault]:
    """What the plugin does not use, and what it needs."""
    known = table("cni")
    row, vxlan, overlay = known["plugins"][cni.plugin], known["vxlan"], is_overlay(cni.plugin, cni.mode)
    for key in [key for key, value in cni if key != "plugin" and value is not None]:
        users = ", ".join(name for name, other in known["plugins"].items() if key in other["takes"])
        nothing = f"{key} has no effect without a plugin: {row['title']}"
        unused = nothing if cni.plugin == "none" else f"{row['title']} does not use {key}"
        yield Fault(key not in row["takes"], (key,), unused, f"leave it out, or choose one of {users}")
        yield Fault(
            key in row.get("overlay_only", ()) and not overlay,
            (key,),
            f"{key} is for overlay networks, and {row['title']} in mode {cni.mode or row['default_mode']} sets up none",
            f"leave it out, or choose mode {' or '.join(row['overlay_modes'])}",
        )
    yield Fault(
        cni.version is None and row["newest"] is None and "version" in row["takes"],
        ("plugin",),
        f"the catalogue has no version of {row['title']}",
        "set cni.version",
    )
    yield Fault(
        cni.policy_version and cni.policy is None,
        ("policy_version",),
        "nothing enforces policies beside the plugin",
        "leave it out, or write policy: calico",
    )
    yield Fault(
        cni.mode and row["modes"] and cni.mode not in row["modes"],
        ("mode",),
        f"{row['title']} has no mode {cni.mode}",
        f"choose {' or '.join(row['modes'])}, or leave it out",
    )
    if overlay:
        least, port = vxlan["vni_at_least"], vxlan["port"]
        yield Fault(cni.vni is not None and cni.vni < least, ("vni",), vxlan["reason"], f"choose {least} or more")
        # A plugin without the key vni implements its own overlay, where any port works.
        is_other = cni.port is not None and "vni" in row["takes"] and cni.port != port
        yield Fault(is_other, ("port",), vxlan["reason"], f"choose {port}, or leave it out")
    yield from _find_calico_faults(cni)


def _find_calico_faults(cni: Cni) -> Iterator[Fault]:
    """Calico's images for HostProcess pods begin with a version, and imagegen knows the programs of some archives."""
    known, is_plugin = table("cni")["calico"], cni.plugin == "calico"
    version = cni.version if is_plugin else cni.policy_version
    if version is None or not (is_plugin or cni.policy):
        return
    key, first, services = "version" if is_plugin else "policy_version", next(iter(known["images"])), known["services"]
    if is_plugin and cni.mode != "vxlan":
        yield Fault(
            numbers(version) < numbers(first),
            (key,),
            f"Calico {version} has no images for HostProcess pods",
            f"choose {first} or later, or cni.mode: vxlan",
        )
        return
    yield Fault(
        not numbers(services["since"]) <= numbers(version) < numbers(services["before"]),
        (key,),
        f"imagegen does not know the programs in the archive of Calico {version}",
        f"choose {services['since']} or later, and before {services['before']}",
    )


def find_kubelet_faults(kubernetes: Kubernetes) -> Iterator[Fault]:
    """What kubelet of this version does not know, and what imagegen or each node sets itself."""
    version, known = minor(kubernetes.version), table("kubelet")["flags"]
    for flag, value in kubernetes.kubelet_flags.items():
        path = ("kubelet_flags", flag)
        yield Fault(
            flag in OWN_FLAGS,
            path,
            f"kubelet's start script sets --{flag} itself, and the node depends on that value",
            "leave it out",
        )
        yield Fault(
            flag == "feature-gates",
            path,
            "feature gates have their own key",
            "write them under kubernetes.feature_gates",
        )
        yield Fault(
            # An address of zeros only says which family kubelet prefers.
            flag in _FLAGS_OF_ONE_NODE and value.strip("0.:"),
            path,
            f"every node of this image would have --{flag}={value}",
            "write it in the user data, under nodeRegistration: docs/operator-guide.md, Name and address of a node",
        )
        # Flags that are not in the catalogue are not checked.
        last = known.get(flag, {"last": version})["last"]
        yield Fault(
            numbers(version) > numbers(last),
            path,
            f"kubelet {version} exits with an error: --{flag} exists only up to {last}",
            "leave it out",
        )
        # Go stores nanoseconds in 64 bits.
        duration = sum(float(number) * _NANOSECONDS[unit] for number, unit in _DURATION_PART.findall(value))
        yield Fault(
            _DURATION.fullmatch(value) and duration > _MOST_NANOSECONDS,
            path,
            f"{value} exceeds Go's maximum duration, and kubelet exits with an error",
            f"write at most {int(_MOST_NANOSECONDS / _NANOSECONDS['h'])}h",
        )
    if kubernetes.feature_gates and find_row(table("kubernetes")["minors"], kubernetes.version):
        yield from _find_unknown_gates(kubernetes.feature_gates, version)
    if kubernetes.feature_gates:
        yield from _find_needed_gates(kubernetes.feature_gates, version)


def _find_unknown_gates(gates: Mapping[str, bool], version: str) -> Iterator[Fault]:
    """Feature gates that are not in the catalogue are not checked."""
    rows, exits = table("kubelet")["feature_gates"], f"and kubelet {version} exits with `unrecognized feature gate`"
    for gate in [gate for gate in gates if gate in rows]:
        row, path = rows[gate], ("feature_gates", gate)
        first, last, locked = (numbers(row[key] or "") for key in ("first", "last", "locked"))
        yield Fault(
            first and numbers(version) < first,
            path,
            f"{gate} does not exist before {row['first']}, {exits}",
            f"leave it out, or choose Kubernetes {row['first']} or later",
        )
        is_gone = last and numbers(version) > last
        yield Fault(is_gone, path, f"{gate} does not exist after {row['last']}, {exits}", "leave it out")
        yield Fault(
            not is_gone and locked and not gates[gate] and numbers(version) >= locked,
            path,
            f"{gate} cannot be disabled from {row['locked']} on: kubelet {version} exits with an error",
            "leave it out",
        )


def _find_needed_gates(gates: Mapping[str, bool], version: str) -> Iterator[Fault]:
    """kubelet checks it from 1.35 on, and enables many feature gates by default."""
    missing: dict[str, list[str]] = {}
    for row in table("kubelet")["gate_needs"]:
        applies = numbers(row["first"]) <= numbers(version) <= numbers(row["last"] or version)
        if applies and _is_on(row["gate"], gates, version) and not _is_on(row["needs"], gates, version):
            missing.setdefault(row["needs"], []).append(row["gate"])
    exits = f"and kubelet {version} exits with an error"
    for needed, dependents in missing.items():
        decides = _deciding_key(needed, gates, version)
        if decides == needed:
            yield Fault(
                True,
                ("feature_gates", needed),
                f"{' and '.join(dependents)} {'require' if dependents[1:] else 'requires'} {needed}, "
                f"which is false, {exits}",
                f"write {' and '.join(f'{gate}: false' for gate in dependents)} too, or leave {needed} out",
            )
            continue
        off = f"which {decides}: false disables" if decides else "which is disabled by default"
        for gate in dependents:
            key = _deciding_key(gate, gates, version)
            instead = "" if key == gate else f" or {gate}: false"
            yield Fault(
                True,
                ("feature_gates", key or decides),
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


def find_containerd_faults(containerd: Containerd) -> Iterator[Fault]:
    """The settings that this containerd does not have, and those that imagegen sets itself."""
    lines = table("containerd")["lines"]
    found = find_row(lines, containerd.version)
    for name in found.row["lacks"] if found else ():
        first = next(line for line, row in lines.items() if name not in row["lacks"])
        yield Fault(
            getattr(containerd, name),
            (name,),
            f"containerd {minor(containerd.version)} would ignore this setting",
            f"leave it out, or choose {first} or later",
        )
    settings = _parse_toml(containerd.settings) if containerd.settings is not None else None
    if isinstance(settings, str):
        hint = 'write keys as `name = "value"`, below a [section] where they belong to one'
        yield Fault(True, ("settings",), f"the text cannot be parsed as TOML: {settings}", hint)
    elif settings is not None:
        schema = found.row["config_version"] if found else 0
        rows = [("the text has no setting", "leave it out")] if not settings else []
        rows += [*_find_own_settings(settings, schema), *_find_other_schemas(settings, schema)]
        rows += _find_registry_faults(settings, bool(containerd.registry_mirrors))
        yield from (Fault(True, ("settings",), message, hint) for message, hint in rows)


def _find_own_settings(settings: Mapping[str, object], schema: int) -> Iterator[tuple[str, str]]:
    """What imagegen sets itself, and what kubelet depends on."""
    disabled = settings.get("disabled_plugins")
    for key in (key for key in _ROOT_KEYS if key in settings):
        yield f"imagegen sets {key} itself, and the node depends on it", "leave it out"
    for path in (path for path in _OWN_KEYS.get(schema, ()) if _has(settings, path)):
        key = ".".join(path[2:])
        what = f"{key} of {path[1]}" if key else f"the section {path[1]}, which this text would replace"
        yield f"imagegen sets {what}", f"leave it out, or {_instead(path, schema)}"
    for path in (path for path in _LISTENERS if _has(settings, path)):
        changed = f"kubelet connects to the default address of containerd, which {'.'.join(path)} changes"
        yield changed, "leave it out"
    for plugin in (one for one in (disabled if isinstance(disabled, list) else ()) if one in _CRI_PLUGINS):
        yield f"disabled_plugins has {plugin}, without which kubelet has no runtime", "leave it out of the list"


def _instead(path: tuple[str, ...], schema: int) -> str:
    if schema == 2:
        return "choose containerd 2.x, which merges sections"
    if path[-2] == "cni":
        return "put the CNI plugins into the default folders"
    return f"write {_INSTEAD[path[-1]]}"


def _find_other_schemas(settings: Mapping[str, object], schema: int) -> Iterator[tuple[str, str]]:
    """Settings of plugins that this schema of containerd's config does not have."""
    for plugin in (name for name in _OTHER_NAMES.get(schema, ()) if _has(settings, ("plugins", name))):
        names = " or ".join(_PLUGIN_NAMES[schema])
        yield f"schema {schema} of containerd's config has no plugin {plugin}", f"write it for {names}"
    # The plugin keeps its name after schema 2, but its settings for images and containers moved to other plugins.
    for row in table("containerd")["moved"] if schema > 2 else ():
        for key in (key for key in row["keys"] if _has(settings, ("plugins", _OLD_CRI, key))):
            hint = f"write {_INSTEAD[key]}" if key in _INSTEAD else f"write it for {row['to']}"
            yield f"{_OLD_CRI} ignores {key} in schema {schema} of containerd's config", hint


def _find_registry_faults(settings: Mapping[str, object], has_mirrors: bool) -> Iterator[tuple[str, str]]:
    """Registries that registry_mirrors hides, and credentials that the image would contain."""
    if has_mirrors and _has(settings, ("plugins", _IMAGES, "registry", "configs")):
        message = f"with registry_mirrors, containerd ignores registry.configs of {_IMAGES}"
        yield message, "leave one of them out"
    for plugin, section in _map_of(settings, "plugins").items():
        registry = _map_of(section, "registry")
        configs = _map_of(registry, "configs").values()
        if "auths" in registry or any("auth" in part for part in configs if isinstance(part, dict)):
            yield (
                f"{plugin} contains credentials of a registry, which every user of the image or a node could read",
                "leave them out, and use imagePullSecrets or credential_providers",
            )


@functools.lru_cache(maxsize=1)
def _parse_toml(text: str) -> dict[str, object] | str:
    """The parsed TOML, or the reason why it is invalid."""
    # Few configs have such settings, and importing this takes as long as reading a config.
    import tomllib

    if any(len(line) > _LONGEST_LINE for line in text.splitlines()):
        return f"a line has more than {_LONGEST_LINE} characters"
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    except (ValueError, RecursionError):
        # For a number with thousands of digits, or thousands of brackets.
        return "a number or a list in it is too large"


def _map_of(value: object, key: str) -> dict[str, object]:
    """The map at a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _has(settings: Mapping[str, object], path: Iterable[str]) -> bool:
    value: object = settings
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True
