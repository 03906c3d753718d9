"""The rules for the container runtime: Docker, containerd, its registries and its own settings. Pure."""

import functools
from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import CatalogRow, find_row, is_compatible, is_listed, minor, numbers, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule

_SETTINGS: YamlPath = ("runtime", "containerd", "settings")

# From this version on, kubelet looks for a network named `host` on Docker nodes.
_LOOKS_FOR_HOST: Final = (1, 17)

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


@rule("docker-needs-cri-dockerd", ERROR, "Docker requires cri-dockerd from Kubernetes 1.24 on")
def docker_needs_cri_dockerd(given: RuleInput) -> Iterator[Finding]:
    docker, minors = given.config.runtime.docker, table("kubernetes")["minors"]
    found = find_row(minors, given.config.kubernetes.version)
    if docker and found and not docker.cri_dockerd and not found.row["dockershim"]:
        last = [name for name, row in minors.items() if row["dockershim"]][-1]
        yield Finding(
            ("runtime", "docker"),
            f"kubelet supports Docker without cri-dockerd only up to Kubernetes {last}",
            "set cri_dockerd to a version, or choose containerd",
        )


@rule("host-network-is-dockers", ERROR, "fake_host_network must be used only with Docker, and from Kubernetes 1.17 on")
def host_network_is_dockers(given: RuleInput) -> Iterator[Finding]:
    runtime, version = given.config.runtime, given.config.kubernetes.version
    path: YamlPath = ("runtime", "fake_host_network")
    if runtime.fake_host_network and not runtime.docker:
        yield Finding(path, "fake_host_network has no effect with containerd", "leave it out")
    elif runtime.fake_host_network and () < numbers(minor(version)) < _LOOKS_FOR_HOST:
        yield Finding(
            path,
            f"fake_host_network has no effect with kubelet {minor(version)}",
            "leave it out, or choose Kubernetes 1.17 or later",
        )


@rule("containerd-kubernetes", ERROR, "containerd and Kubernetes must have compatible versions")
def containerd_kubernetes(given: RuleInput) -> Iterator[Finding]:
    found, version = _containerd_line(given), given.config.kubernetes.version
    if found and find_row(table("kubernetes")["minors"], version) and not is_compatible(found.row, version):
        others = [
            name
            for name, row in table("containerd")["lines"].items()
            if is_compatible(row, version) and is_listed(row["newest_patch"], version)
        ]
        yield Finding(
            ("runtime", "containerd", "version"),
            found.row["kubernetes"]["reason"],
            f"with Kubernetes {minor(version)} choose one of {', '.join(others)}"
            if others
            else f"no containerd works with Kubernetes {minor(version)}: choose a newer Kubernetes",
        )


def _containerd_line(given: RuleInput) -> CatalogRow | None:
    """The catalogue's row for the containerd of the config; None without one."""
    containerd = given.config.runtime.containerd
    return find_row(table("containerd")["lines"], containerd.version) if containerd else None


@rule(
    "containerd-kubernetes-untested",
    WARNING,
    "containerd's own support list should have its version with this Kubernetes",
)
def containerd_kubernetes_untested(given: RuleInput) -> Iterator[Finding]:
    containerd, version = given.config.runtime.containerd, given.config.kubernetes.version
    line = _containerd_line(given)
    if containerd and line and is_compatible(line.row, version) and not is_listed(containerd.version, version):
        choices = " or ".join(table("containerd")["tested"][minor(version)]["at_least"])
        yield Finding(
            ("runtime", "containerd", "version"),
            f"containerd {containerd.version} is not tested with Kubernetes {minor(version)}, says its support list",
            f"choose {choices}, or a later patch of one of them",
        )


@rule(
    "registry-mirror-named",
    ERROR,
    "A registry in registry_mirrors must have a mirror",
    why="without a mirror the entry has no effect",
)
def registry_mirror_named(given: RuleInput) -> list[Finding]:
    containerd = given.config.runtime.containerd
    return [
        Finding(
            ("runtime", "containerd", "registry_mirrors", host),
            f"{host} has no mirror",
            "add a mirror, or leave the registry out",
        )
        for host, mirrors in (containerd.registry_mirrors.items() if containerd else ())
        if not mirrors
    ]


@rule(
    "registry-mirror-once",
    ERROR,
    "A registry in registry_mirrors must name each mirror once",
    why="containerd would try the same mirror twice",
)
def registry_mirror_once(given: RuleInput) -> Iterator[Finding]:
    containerd = given.config.runtime.containerd
    for host, mirrors in containerd.registry_mirrors.items() if containerd else ():
        # As in containerd's hosts.toml, which is invalid with duplicates.
        plain = [mirror.rstrip("/") for mirror in mirrors]
        for index, mirror in enumerate(plain):
            if mirror in plain[:index] and mirrors[index] not in mirrors[:index]:
                yield Finding(
                    ("runtime", "containerd", "registry_mirrors", host, index),
                    f"duplicate mirror {mirror}: a final slash makes no difference",
                    "leave one out",
                )


@rule("containerd-knows-setting", ERROR, "This containerd must support each setting")
def containerd_knows_setting(given: RuleInput) -> Iterator[Finding]:
    found, lines = _containerd_line(given), table("containerd")["lines"]
    for name in found.row["lacks"] if found else ():
        if found and getattr(given.config.runtime.containerd, name):
            first = next(line for line, row in lines.items() if name not in row["lacks"])
            yield Finding(
                ("runtime", "containerd", name),
                f"containerd {found.minor} would ignore this setting",
                f"leave it out, or choose {first} or later",
            )


@rule("containerd-settings-are-toml", ERROR, "runtime.containerd.settings must be TOML")
def containerd_settings_are_toml(given: RuleInput) -> Iterator[Finding]:
    text = given.config.runtime.containerd.settings if given.config.runtime.containerd else None
    if text is None:
        return
    settings = _parsed(text)
    if isinstance(settings, str):
        yield Finding(
            _SETTINGS,
            f"the text cannot be parsed as TOML: {settings}",
            'write keys as `name = "value"`, below a [section] where they belong to one',
        )
    elif not settings:
        yield Finding(_SETTINGS, "the text has no setting", "leave it out")


@rule("containerd-settings-of-imagegen", ERROR, "runtime.containerd.settings must not change what imagegen sets itself")
def containerd_settings_of_imagegen(given: RuleInput) -> list[Finding]:
    settings, schema = _settings(given)
    disabled = settings.get("disabled_plugins")
    return [
        *(
            Finding(_SETTINGS, f"imagegen sets {key} itself, and the node depends on it", "leave it out")
            for key in _ROOT_KEYS
            if key in settings
        ),
        *(
            Finding(_SETTINGS, f"imagegen sets {_setting(path)}", f"leave it out, or {_instead(path, schema)}")
            for path in _OWN_KEYS.get(schema, ())
            if _has(settings, path)
        ),
        *(
            Finding(
                _SETTINGS,
                f"kubelet connects to the default address of containerd, which {'.'.join(path)} changes",
                "leave it out",
            )
            for path in _LISTENERS
            if _has(settings, path)
        ),
        *(
            Finding(
                _SETTINGS,
                f"disabled_plugins has {plugin}, without which kubelet has no runtime",
                "leave it out of the list",
            )
            for plugin in (disabled if isinstance(disabled, list) else ())
            if plugin in _CRI_PLUGINS
        ),
    ]


def _setting(path: tuple[str, ...]) -> str:
    key = ".".join(path[2:])
    return f"{key} of {path[1]}" if key else f"the section {path[1]}, which this text would replace"


registry_mirror_beside_configs = simple_rule(
    "registry-mirror-beside-configs",
    ERROR,
    "registry_mirrors and registry.configs must not be used together",
    lambda given: (
        given.config.runtime.containerd
        and given.config.runtime.containerd.registry_mirrors
        and _has(_settings(given)[0], ("plugins", _IMAGES, "registry", "configs"))
    ),
    Finding(
        _SETTINGS,
        f"with registry_mirrors, containerd ignores registry.configs of {_IMAGES}",
        "leave one of them out",
    ),
)


@rule("registry-secret", ERROR, "The image must not contain a registry's credentials")
def registry_secret(given: RuleInput) -> Iterator[Finding]:
    settings, _ = _settings(given)
    plugins = settings.get("plugins")
    for plugin, table_of in plugins.items() if isinstance(plugins, dict) else ():
        registry = table_of.get("registry") if isinstance(table_of, dict) else None
        registry = registry if isinstance(registry, dict) else {}
        configs = registry.get("configs")
        parts = configs.values() if isinstance(configs, dict) else ()
        if "auths" in registry or any("auth" in part for part in parts if isinstance(part, dict)):
            yield Finding(
                _SETTINGS,
                f"{plugin} contains credentials of a registry, which every user of the image or a node could read",
                "leave them out, and use imagePullSecrets or credential_providers",
            )


def _instead(path: tuple[str, ...], schema: int) -> str:
    if schema == 2:
        return "choose containerd 2.x, which merges sections"
    if path[-2] == "cni":
        return "put the CNI plugins into the default folders"
    return f"write {_INSTEAD[path[-1]]}"


@rule("containerd-settings-schema", ERROR, "runtime.containerd.settings must use the config schema of this containerd")
def containerd_settings_schema(given: RuleInput) -> list[Finding]:
    settings, schema = _settings(given)
    return [
        *(
            Finding(
                _SETTINGS,
                f"schema {schema} of containerd's config has no plugin {plugin}",
                f"write it for {' or '.join(_PLUGIN_NAMES[schema])}",
            )
            for plugin in _OTHER_NAMES.get(schema, ())
            if _has(settings, ("plugins", plugin))
        ),
        # The plugin keeps its name after schema 2, but its settings for images and containers moved to other plugins.
        *(
            Finding(
                _SETTINGS,
                f"{_OLD_CRI} ignores {key} in schema {schema} of containerd's config",
                f"write {_INSTEAD[key]}" if key in _INSTEAD else f"write it for {row['to']}",
            )
            for row in (table("containerd")["moved"] if schema > 2 else ())
            for key in row["keys"]
            if _has(settings, ("plugins", _OLD_CRI, key))
        ),
    ]


def _settings(given: RuleInput) -> tuple[dict[str, object], int]:
    """The settings, empty where they are not TOML, and the schema of this containerd's config."""
    containerd, found = given.config.runtime.containerd, _containerd_line(given)
    if not containerd or not containerd.settings or not found:
        return {}, 0
    settings = _parsed(containerd.settings)
    return ({} if isinstance(settings, str) else settings), found.row["config_version"]


@functools.lru_cache(maxsize=1)
def _parsed(text: str) -> dict[str, object] | str:
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


def _has(settings: dict[str, object], path: tuple[str, ...]) -> bool:
    value: object = settings
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True
