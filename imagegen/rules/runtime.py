"""The container runtime: Docker's conditions, containerd with Kubernetes, and settings of one's own. Pure."""

from __future__ import annotations

import functools
import tomllib
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import goes_with, is_listed, known, minor, numbers, table
from imagegen.judging import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.judging import RuleInput

_SETTINGS: YamlPath = ("runtime", "containerd", "settings")

# From here on kubelet looks for the network named `host` on Docker nodes.
_LOOKS_FOR_HOST: Final = (1, 17)

# A key of many hundreds of parts, with many more below it, takes the reader of TOML seconds.
_LONGEST_LINE: Final = 500

_OLD_CRI: Final = "io.containerd.grpc.v1.cri"
_IMAGES: Final = "io.containerd.cri.v1.images"
_RUNTIME: Final = "io.containerd.cri.v1.runtime"

# What imagegen's own config says, by the schema of the config. In schema 2 an imported file replaces a plugin's whole
# section (https://github.com/containerd/containerd/pull/9982), so there the section itself is imagegen's.
_ROOT_KEYS: Final = ("version", "imports", "root", "state")
_OWN_KEYS: Final[dict[int, tuple[tuple[str, ...], ...]]] = {
    2: (("plugins", _OLD_CRI),),
    3: (
        ("plugins", _IMAGES, "discard_unpacked_layers"),
        ("plugins", _IMAGES, "image_pull_progress_timeout"),
        ("plugins", _IMAGES, "max_concurrent_downloads"),
        ("plugins", _IMAGES, "pinned_images", "sandbox"),
        ("plugins", _IMAGES, "registry", "config_path"),
        # The older form of the same: beside config_path containerd refuses it, and the node has no CRI.
        ("plugins", _IMAGES, "registry", "mirrors"),
        ("plugins", _RUNTIME, "cni", "bin_dir"),
        ("plugins", _RUNTIME, "cni", "bin_dirs"),
        ("plugins", _RUNTIME, "cni", "conf_dir"),
    ),
}
_MIRRORS: Final = "runtime.containerd.registry_mirrors"
# Where a config says it instead, by the key in containerd's own.
_SAID_BY: Final = {
    **{"sandbox": "kubernetes.pause_image", "sandbox_image": "kubernetes.pause_image"},
    **{"config_path": _MIRRORS, "mirrors": _MIRRORS, "registry": _MIRRORS},
    **{
        name: f"runtime.containerd.{name}"
        for name in ("discard_unpacked_layers", "image_pull_progress_timeout", "max_concurrent_downloads")
    },
}
# Up to this schema one plugin was all of them.
_MERGED_CRI: Final = 2
# What the schema calls the plugins that Kubernetes speaks to, and what other schemas call them.
_NAMED: Final = {2: (_OLD_CRI,), 3: (_IMAGES, _RUNTIME)}
_NAMED_ELSEWHERE: Final = {2: (_IMAGES, _RUNTIME, "cri"), 3: ("cri",)}
# Without one of these kubelet finds no runtime.
_CRI_PLUGINS: Final = (_OLD_CRI, _IMAGES, _RUNTIME, "cri")
# The pipe that kubelet's start script names, and the one beside it.
_LISTENERS: Final = (("grpc", "address"), ("ttrpc", "address"))


@rule("docker-needs-cri-dockerd", ERROR, "Docker requires cri-dockerd from Kubernetes 1.24 on")
def docker_needs_cri_dockerd(given: RuleInput) -> Iterator[Finding]:
    docker, minors = given.config.runtime.docker, table("kubernetes")["minors"]
    found = known(minors, given.config.kubernetes.version)
    if docker and found and not docker.cri_dockerd and not found.row["dockershim"]:
        last = [name for name, row in minors.items() if row["dockershim"]][-1]
        message = f"kubelet speaks to Docker itself up to Kubernetes {last} only"
        yield Finding(("runtime", "docker"), message, "name a cri_dockerd version, or choose containerd")


@rule("host-network-is-dockers", ERROR, "fake_host_network must be used only with Docker, and from Kubernetes 1.17 on")
def host_network_is_dockers(given: RuleInput) -> Iterator[Finding]:
    runtime, version = given.config.runtime, given.config.kubernetes.version
    path: YamlPath = ("runtime", "fake_host_network")
    if runtime.fake_host_network and not runtime.docker:
        yield Finding(path, "with containerd nothing looks for a network named host", "leave it out")
    elif runtime.fake_host_network and () < numbers(minor(version)) < _LOOKS_FOR_HOST:
        yield Finding(
            path,
            f"kubelet {minor(version)} does not look for a network named host",
            "leave it out, or choose Kubernetes 1.17 or later",
        )


@rule("containerd-kubernetes", ERROR, "containerd and Kubernetes must be versions that work together")
def containerd_kubernetes(given: RuleInput) -> Iterator[Finding]:
    containerd, lines = given.config.runtime.containerd, table("containerd")["lines"]
    found = known(lines, containerd.version) if containerd else None
    version = given.config.kubernetes.version
    if found and known(table("kubernetes")["minors"], version) and not goes_with(found.row, version):
        fitting = [name for name, row in lines.items() if goes_with(row, version)]
        others = [name for name in fitting if is_listed(lines[name]["newest_patch"], version)]
        yield Finding(
            ("runtime", "containerd", "version"),
            found.row["kubernetes"]["reason"],
            f"with Kubernetes {minor(version)} choose one of {', '.join(others)}",
        )


@rule("containerd-kubernetes-untested", WARNING, "containerd's own list should pair its version with Kubernetes")
def containerd_kubernetes_untested(given: RuleInput) -> Iterator[Finding]:
    containerd, version = given.config.runtime.containerd, given.config.kubernetes.version
    line = known(table("containerd")["lines"], containerd.version) if containerd else None
    if containerd and line and goes_with(line.row, version) and not is_listed(containerd.version, version):
        choices = " or ".join(table("containerd")["tested"][minor(version)]["at_least"])
        yield Finding(
            ("runtime", "containerd", "version"),
            f"containerd {containerd.version} is not listed with Kubernetes {minor(version)}: nobody tests them",
            f"choose {choices}, or a later patch of one",
        )


@rule(
    "registry-mirror-named",
    ERROR,
    "A registry in registry_mirrors must have a mirror",
    why="without a mirror the entry does nothing",
)
def registry_mirror_named(given: RuleInput) -> Iterator[Finding]:
    containerd = given.config.runtime.containerd
    for host, mirrors in containerd.registry_mirrors.items() if containerd else ():
        if not mirrors:
            yield Finding(
                ("runtime", "containerd", "registry_mirrors", host),
                f"there is no mirror of {host} here",
                "name one, or leave the registry out",
            )


@rule(
    "registry-mirror-once",
    ERROR,
    "A registry in registry_mirrors must name each mirror once",
    why="containerd would ask the same mirror twice",
)
def registry_mirror_once(given: RuleInput) -> Iterator[Finding]:
    containerd = given.config.runtime.containerd
    for host, mirrors in containerd.registry_mirrors.items() if containerd else ():
        # As the file for containerd has them: it takes none where one is there twice.
        plain = [mirror.rstrip("/") for mirror in mirrors]
        for index, mirror in enumerate(plain):
            if mirror in plain[:index] and mirrors[index] not in mirrors[:index]:
                yield Finding(
                    ("runtime", "containerd", "registry_mirrors", host, index),
                    f"{mirror} is here twice: a closing slash makes no other one",
                    "leave one out",
                )


@rule("containerd-knows-setting", ERROR, "This containerd must know each setting")
def containerd_knows_setting(given: RuleInput) -> Iterator[Finding]:
    containerd, lines = given.config.runtime.containerd, table("containerd")["lines"]
    found = known(lines, containerd.version) if containerd else None
    if found is None:
        return
    for name in found.row["lacks"]:
        if getattr(containerd, name):
            first = next(line for line, row in lines.items() if name not in row["lacks"])
            yield Finding(
                ("runtime", "containerd", name),
                f"containerd {found.minor} does not know it, and would pass it over",
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
            f"containerd would not start with this: {settings}",
            'write keys as `name = "value"`, below a [section] where they belong to one',
        )
    elif not settings:
        yield Finding(_SETTINGS, "there is no setting in it", "leave it out")


@rule("containerd-settings-of-imagegen", ERROR, "runtime.containerd.settings must not change what imagegen sets itself")
def containerd_settings_of_imagegen(given: RuleInput) -> Iterator[Finding]:
    settings, schema = _settings(given)
    for key in _ROOT_KEYS:
        if key in settings:
            yield Finding(_SETTINGS, f"imagegen's own config says {key}, and the node depends on it", "leave it out")
    for path in _OWN_KEYS.get(schema, ()):
        if _has(settings, path):
            key = ".".join(path[2:])
            said = f"{path[1]}: {key}" if key else f"the section {path[1]}, which this would replace"
            yield Finding(_SETTINGS, f"imagegen's own config says {said}", f"leave it out, or {_instead(path, schema)}")
    for path in _LISTENERS:
        if _has(settings, path):
            yield Finding(
                _SETTINGS,
                f"kubelet looks for containerd where it listens by itself, and {'.'.join(path)} says another place",
                "leave it out",
            )
    disabled = settings.get("disabled_plugins")
    for plugin in disabled if isinstance(disabled, list) else ():
        if plugin in _CRI_PLUGINS:
            yield Finding(
                _SETTINGS,
                f"disabled_plugins names {plugin}, and without it kubelet has no runtime",
                "leave it out of the list",
            )


@rule("registry-mirror-beside-configs", ERROR, "registry_mirrors and registry.configs must not be used together")
def registry_mirror_beside_configs(given: RuleInput) -> Iterator[Finding]:
    containerd, (settings, _) = given.config.runtime.containerd, _settings(given)
    if containerd and containerd.registry_mirrors and _has(settings, ("plugins", _IMAGES, "registry", "configs")):
        yield Finding(
            _SETTINGS,
            f"with registry_mirrors containerd reads one folder, and passes over registry.configs of {_IMAGES}",
            "leave one of both out",
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
                f"{plugin} gets a registry's credentials, and whoever has the image or a node of it reads them",
                "leave them out: pods have imagePullSecrets, and kubelet has credential_providers",
            )


def _instead(path: tuple[str, ...], schema: int) -> str:
    if schema == 2:
        return "choose containerd 2.x, which merges"
    if path[-2] == "cni":
        return "put the plugins into the folders that it names"
    return f"say {_SAID_BY[path[-1]]}"


@rule("containerd-settings-schema", ERROR, "runtime.containerd.settings must use the config schema of this containerd")
def containerd_settings_schema(given: RuleInput) -> Iterator[Finding]:
    settings, schema = _settings(given)
    for plugin in _NAMED_ELSEWHERE.get(schema, ()):
        if _has(settings, ("plugins", plugin)):
            yield Finding(
                _SETTINGS,
                f"containerd's config is written in schema {schema}, which has no plugin {plugin}",
                f"write it for {' or '.join(_NAMED[schema])}",
            )
    # What listens for kubelet has kept its name; what it once said of images and of containers is said elsewhere.
    for row in table("containerd")["moved"] if schema > _MERGED_CRI else ():
        for key in row["keys"]:
            if _has(settings, ("plugins", _OLD_CRI, key)):
                yield Finding(
                    _SETTINGS,
                    f"in schema {schema} {key} is no key of {_OLD_CRI} any more, which would pass it over",
                    f"say {_SAID_BY[key]}" if key in _SAID_BY else f"write it for {row['to']}",
                )


def _settings(given: RuleInput) -> tuple[dict[str, object], int]:
    """The settings, empty where they are not TOML, and the schema of this containerd's config."""
    containerd = given.config.runtime.containerd
    found = known(table("containerd")["lines"], containerd.version) if containerd else None
    if not containerd or not containerd.settings or not found:
        return {}, 0
    settings = _parsed(containerd.settings)
    return ({} if isinstance(settings, str) else settings), found.row["config_version"]


@functools.lru_cache(maxsize=1)
def _parsed(text: str) -> dict[str, object] | str:
    """TOML as data, or why it is none."""
    if any(len(line) > _LONGEST_LINE for line in text.splitlines()):
        return f"a line has more than {_LONGEST_LINE} characters"
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    except (ValueError, RecursionError):
        # A number of thousands of digits; thousands of brackets.
        return "a number or a list in it is larger than anything here needs"


def _has(settings: dict[str, object], path: tuple[str, ...]) -> bool:
    value: object = settings
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True
