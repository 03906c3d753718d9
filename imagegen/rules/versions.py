"""The rules for versions: of Windows, Kubernetes, containerd, Docker and their images. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from imagegen.catalog.docker import DOCKERSHIM, Client, Engine, can_lower_api, find_client, find_engine, least_api
from imagegen.catalog.facts import CatalogRow, JsonObject, find_row, is_compatible, is_listed, minor, numbers, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule, simple_rule

_RELEASE: YamlPath = ("windows", "release")
_DOCKER: YamlPath = ("runtime", "docker", "version")
_SOON: Final = datetime.timedelta(days=90)


class _Version(NamedTuple):
    """A version that the catalogue must have. `row` is the row that applies, if there is one."""

    path: YamlPath
    product: str
    version: str
    row: str
    newer: bool
    """Whether the version is newer than every row."""
    known: str


def _versions(given: RuleInput) -> Iterator[_Version]:
    config, minors, lines = given.config, table("kubernetes")["minors"], table("containerd")["lines"]
    names, version = list(minors), config.kubernetes.version
    # The catalogue has every minor of Kubernetes between the first and the last.
    yield _version(("kubernetes", "version"), "Kubernetes", version, minors, f"{names[0]} to {names[-1]}")
    if containerd := config.runtime.containerd:
        path: YamlPath = ("runtime", "containerd", "version")
        yield _version(path, "containerd", containerd.version, lines, ", ".join(lines))
    if docker := config.runtime.docker:
        engine, facts = find_engine(docker.version), table("docker")
        row, newer = (engine.line, engine.newer) if engine else ("", False)
        yield _Version(
            _DOCKER, "Docker", docker.version, row, newer, f"{next(iter(facts['lines']))} to {facts['newest']}"
        )


def _version(path: YamlPath, product: str, version: str, rows: JsonObject, known: str) -> _Version:
    found = find_row(rows, version)
    return _Version(path, product, version, found.minor if found else "", bool(found and found.newer), known)


@rule(
    "version-known",
    ERROR,
    "The catalogue must have the line of Kubernetes, containerd or Docker",
    why="the end of support, and the versions, settings and flags that fit together, come from the catalogue",
)
def version_known(given: RuleInput) -> list[Finding]:
    return [
        Finding(one.path, f"the catalogue has no {one.product} {minor(one.version)}", f"known: {one.known}")
        for one in _versions(given)
        if not one.row
    ]


@rule(
    "version-newer-than-catalogue",
    WARNING,
    "Kubernetes, containerd or Docker should not be newer than the catalogue",
    why="nobody has checked which settings and flags this version has, and which other versions it needs",
)
def version_newer(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            one.path,
            f"{one.product} {minor(one.version)} is newer than the catalogue, so imagegen uses the facts of {one.row}",
            f"choose {one.row}, or read its release notes and test the image",
        )
        for one in _versions(given)
        if one.newer
    ]


@rule("cloudbase-init-known", WARNING, "The cloudbase-init version should be in the catalogue")
def cloudbase_init_known(given: RuleInput) -> Iterator[Finding]:
    version, versions = given.config.cloudbase_init.version, table("cloudbase-init")["versions"]
    if version not in versions:
        yield Finding(
            ("cloudbase_init", "version"),
            f"cloudbase-init {version} is not in the catalogue and not tested with imagegen",
            f"known: {', '.join(versions)}",
        )


@rule(
    "windows-release-known",
    ERROR,
    "The Windows release must be in the catalogue, and Kubernetes must still support it",
    why="base images, registry fixes and container images depend on the release",
)
def windows_release_known(given: RuleInput) -> Iterator[Finding]:
    release, windows = given.config.windows.release, table("windows")
    if release not in windows["releases"]:
        refused = windows["refused"].get(release, {"reason": f"unknown Windows release {release!r}"})
        yield Finding(_RELEASE, refused["reason"], f"choose one of {', '.join(windows['releases'])}")


@dataclasses.dataclass(frozen=True)
class _Product:
    """A product whose support ends."""

    path: YamlPath
    title: str
    end: datetime.date
    later: str
    """The versions with longer support, as a hint."""


def _products(given: RuleInput) -> Iterator[_Product]:
    """The products. The end of support of a version that is newer than the catalogue is unknown."""
    config, releases = given.config, table("windows")["releases"]
    if release := releases.get(config.windows.release):
        newer = {name: row for name, row in releases.items() if row["build"] > release["build"]}
        yield _product(_RELEASE, release["title"], release, newer, given.today)
    for one in _versions(given):
        rows = table("kubernetes")["minors"] if one.product == "Kubernetes" else table("containerd")["lines"]
        if one.row and not one.newer and one.product != "Docker":
            newer = {name: row for name, row in rows.items() if numbers(name) > numbers(one.row)}
            if one.product == "containerd":
                fits = [name for name in newer if is_listed(newer[name]["newest_patch"], config.kubernetes.version)]
                newer = {name: newer[name] for name in fits}
            yield _product(one.path, f"{one.product} {one.row}", rows[one.row], newer, given.today)


def _product(
    path: YamlPath, title: str, row: JsonObject, newer: Mapping[str, JsonObject], today: datetime.date
) -> _Product:
    end = _end(row)
    later = [name for name, other in newer.items() if _end(other) >= today and _end(other) > end]
    none = "a newer line, as soon as there is one: the catalogue has none with longer support"
    return _Product(path, title, end, " or ".join(later) or none)


def _end(row: JsonObject) -> datetime.date:
    return datetime.date.fromisoformat(row["end_of_life"])


@rule(
    "support-ended",
    ERROR,
    "Windows, Kubernetes and containerd must be supported, unless allow_eol is true",
    why="a node without security fixes endangers every workload on it",
)
def support_ended(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            product.path,
            f"support of {product.title} ended on {product.end}: it no longer receives security fixes",
            f"choose {product.later}, or write allow_eol: true, which the manifest records",
        )
        for product in _products(given)
        if product.end < given.today and not given.config.allow_eol
    ]


@rule(
    "support-ended-allowed",
    WARNING,
    "Windows, Kubernetes and containerd should be supported, even where allow_eol is true",
    why="a node without security fixes endangers every workload on it",
)
def support_ended_allowed(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            product.path,
            f"support of {product.title} ended on {product.end}, and allow_eol permits the build",
            f"upgrade to {product.later}",
        )
        for product in _products(given)
        if product.end < given.today and given.config.allow_eol
    ]


@rule(
    "support-ends-soon",
    WARNING,
    "Windows, Kubernetes and containerd should be supported for 90 more days",
    why="nodes of this image may run longer than the support, and testing the next version takes time",
)
def support_ends_soon(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            product.path,
            f"support of {product.title} ends on {product.end}",
            f"plan the upgrade to {product.later}",
        )
        for product in _products(given)
        if given.today <= product.end <= given.today + _SOON
    ]


allow_eol_idle = simple_rule(
    "allow-eol-idle",
    WARNING,
    "allow_eol should be true only where support has ended",
    lambda given: given.config.allow_eol and not any(product.end < given.today for product in _products(given)),
    Finding(
        ("allow_eol",),
        "allow_eol has no effect: everything in the config is still supported",
        "leave it out until it is needed",
    ),
)


_WINDOWS_WORDS: Final = ("windows", "nanoserver", "servercore")
# The index of the build in 10.0.20348.1.
_BUILD: Final = 2


ON_WINDOWS: Final = (
    rule("windows-refused", ERROR, "Kubernetes and the CNI plugin must run on the Windows release")(
        lambda given: _verdicts(given, "refused")
    ),
    rule("windows-untested", WARNING, "Kubernetes and the CNI plugin should be tested on the Windows release")(
        lambda given: _verdicts(given, "untested")
    ),
)


def _verdicts(given: RuleInput, verdict: str) -> Iterator[Finding]:
    """The verdict about Kubernetes, and the one about the CNI plugin."""
    release, minors, plugins = given.config.windows.release, table("kubernetes")["minors"], table("cni")["plugins"]
    known, kubernetes = table("windows")["releases"].get(release), find_row(minors, given.config.kubernetes.version)
    if known is None:
        return
    title, plugin = known["title"], plugins[given.config.cni.plugin]
    row = _row_of(kubernetes.row, release, f"Kubernetes {kubernetes.minor} runs on {title}") if kubernetes else {}
    if kubernetes and row["verdict"] == verdict:
        releases = [name for name, other in kubernetes.row["windows"].items() if other["verdict"] == "tested"]
        others = _tested(minors, release)
        choices = [f"Windows {' or '.join(releases)}"] if releases else []
        choices += [f"Kubernetes {others[0]} to {others[-1]}"] if others else []
        tested = f"tested together: {'; or '.join(choices)}" if choices else "choose another release"
        yield Finding(_RELEASE, row["reason"], tested)
    row = _row_of(plugin, release, f"{plugin['title']} runs on {title}")
    if given.config.cni.plugin != "none" and row["verdict"] == verdict:
        others = [name for name in _tested(plugins, release) if name != "none"]
        tested = f"tested on this release: {', '.join(others)}" if others else "choose another release"
        yield Finding(("cni", "plugin"), row["reason"], tested)


def _row_of(product: JsonObject, release: str, question: str) -> JsonObject:
    unknown = {"verdict": "untested", "reason": f"the catalogue does not say whether {question}"}
    row: JsonObject = product["windows"].get(release, unknown)
    return row


def _tested(rows: JsonObject, release: str) -> list[str]:
    return [name for name, row in rows.items() if row["windows"].get(release, {}).get("verdict") == "tested"]


@rule(
    "container-image-release",
    ERROR,
    "Container images must have a Windows release that the host can run",
    why="a container shares the kernel of its host",
)
def container_image_release(given: RuleInput) -> Iterator[Finding]:
    release = table("windows")["releases"].get(given.config.windows.release)
    if release is None:
        return
    runs = _runs(given)
    tags = ", ".join(tag for tag, name in table("images")["tags"].items() if name in runs)
    for path, image in _container_images(given):
        of = _release_of(image, of_windows=path[0] == "windows")
        if of and of not in runs:
            yield Finding(
                path,
                f"{image} has Windows {of}, but {release['title']} cannot run containers of that release",
                f"choose an image with one of the tags {tags}",
            )


@rule("container-image-tag-known", WARNING, "The tag of a container image should contain its Windows release")
def container_image_tag_known(given: RuleInput) -> list[Finding]:
    return [
        Finding(
            path,
            f"the Windows release of {image} is unknown, so the host may be unable to run it",
            f"choose a tag with {', '.join(table('images')['tags'])}, or with the build, for example 10.0.20348.1",
        )
        for path, image in _container_images(given)
        # Other images may support several releases, or not depend on one.
        if (path[0] == "windows" or image.startswith("mcr.microsoft.com/windows/"))
        and _release_of(image, of_windows=True) is None
    ]


def _container_images(given: RuleInput) -> list[tuple[YamlPath, str]]:
    return [
        *((("windows", "container_images", i), image) for i, image in enumerate(given.config.windows.container_images)),
        *((("images", index), image) for index, image in enumerate(given.config.images)),
        *((("image_tarballs", at, "name"), one.name) for at, one in enumerate(given.config.image_tarballs)),
    ]


def _release_of(image: str, *, of_windows: bool) -> str | None:
    """The release in a container image's tag, by its name or build; None where the tag has none."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2].lower()
    images, releases = table("images"), table("windows")["releases"]
    words = images["tags"] | {word: row["release"] for word, row in images["former_tags"].items()}
    builds = {str(row["build"]): row["release"] for row in images["former_tags"].values()}
    builds |= {str(row["build"]): name for name, row in releases.items()}
    # In tags of other images, 2004 may be any version.
    plain = of_windows or image.startswith("mcr.microsoft.com/") or any(word in tag for word in _WINDOWS_WORDS)
    for part in tag.split("-"):
        numbered = part.split(".")
        if part in words and (plain or not part.isdigit()):
            return str(words[part])
        if numbered[:2] == ["10", "0"] and len(numbered) > _BUILD and numbered[_BUILD] in builds:
            return str(builds[numbered[_BUILD]])
    return None


def _runs(given: RuleInput) -> set[str]:
    """The releases whose containers the host can run. Hyper-V isolation adds all older releases."""
    windows, releases = given.config.windows, table("windows")["releases"]
    host = releases[windows.release]
    runs = set(host["runs_images_of"])
    if windows.hyper_v == "isolation":
        runs |= {name for name, row in releases.items() if row["build"] <= host["build"]}
        runs |= {row["release"] for row in table("images")["former_tags"].values() if row["build"] <= host["build"]}
    return runs


@rule("pause-for-windows", WARNING, "The pause image should have a layer for the Windows release")
def pause_for_windows(given: RuleInput) -> Iterator[Finding]:
    image, release = given.config.kubernetes.pause_image, table("windows")["releases"].get(given.config.windows.release)
    if image is None or release is None or release["pause_at_least"] is None:
        return
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    least = release["pause_at_least"]
    # Images with other names have other versions.
    if name == "pause" and numbers(tag) and numbers(tag) < numbers(least):
        yield Finding(
            ("kubernetes", "pause_image"),
            release["pause_note"],
            f"choose pause {least} or later, or leave pause_image out",
        )


@rule("hot-fix-review", WARNING, "A registry fix should have been reviewed before its date")
def hot_fix_review(given: RuleInput) -> Iterator[Finding]:
    windows, known = given.config.windows, table("windows")
    found: list[tuple[YamlPath, str, str]] = [
        (
            ("windows", "release"),
            f"the review of the registry value {fix['name']} ({fix['reason']}) was due on {{}}: "
            "Windows may not need it any more",
            fix["expires"],
        )
        for fix in known["releases"].get(windows.release, {}).get("hot_fixes", [])
    ]
    found += [
        (
            ("windows", "fixes", index),
            f"the review of the set {name} was due on {{}}: its publisher may have changed it",
            known["fix_sets"][name]["expires"],
        )
        for index, name in enumerate(windows.fixes)
    ]
    for path, message, expires in found:
        if datetime.date.fromisoformat(expires) < given.today:
            yield Finding(path, message.format(expires), "use an imagegen with a newer catalogue")


@rule("hyper-v-isolation-runtime", ERROR, "Hyper-V isolation requires a container runtime that offers it to pods")
def hyper_v_isolation_runtime(given: RuleInput) -> Iterator[Finding]:
    last = table("kubelet")["feature_gates"]["HyperVContainer"]["last"]
    config = given.config
    is_gone = numbers(minor(config.kubernetes.version)) > numbers(last)
    if config.windows.hyper_v == "isolation" and config.runtime.docker and is_gone:
        yield Finding(
            ("windows", "hyper_v"),
            f"with Docker, kubelet isolates pods by the feature gate HyperVContainer, which ended with {last}",
            "use containerd, or write hyper_v: tools",
        )


# From this version on, kubelet looks for a network named `host` on Docker nodes.
_LOOKS_FOR_HOST: Final = (1, 17)


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


_CRI_DOCKERD: YamlPath = ("runtime", "docker", "cri_dockerd")


@rule(
    "cri-dockerd-known",
    ERROR,
    "The cri-dockerd version must be in the catalogue, or have its own URL",
    why="which version of Docker's API it speaks, and the name of its archive, come from the catalogue",
)
def cri_dockerd_known(given: RuleInput) -> Iterator[Finding]:
    docker, facts = given.config.runtime.docker, table("docker")
    version = docker.cri_dockerd if docker else None
    oldest = min(facts["cri_dockerd"], key=numbers)
    if version and numbers(version) < numbers(oldest):
        yield Finding(_CRI_DOCKERD, f"the catalogue has no cri-dockerd {version}", f"choose {oldest} or later")
    elif (
        version
        and numbers(version) < numbers(facts["archive_since"])
        and "cri_dockerd_url" not in given.config.overrides
    ):
        yield Finding(
            _CRI_DOCKERD,
            f"the archive of cri-dockerd {version} for Windows has another name, which the catalogue does not confirm",
            f"choose {facts['archive_since']} or later, or write overrides.cri_dockerd_url",
        )


@rule("mirantis-needs-url", ERROR, "The edition of Mirantis must have its own URL")
def mirantis_needs_url(given: RuleInput) -> Iterator[Finding]:
    docker = given.config.runtime.docker
    if docker and docker.edition == "mirantis" and "docker_url" not in given.config.overrides:
        yield Finding(
            ("runtime", "docker", "edition"),
            "Mirantis publishes only a script that installs what it finds, and no address of one version",
            "write overrides.docker_url: the https URL of a zip with docker/docker.exe and docker/dockerd.exe",
        )


@rule(
    "docker-api",
    ERROR,
    "Docker must answer the version of its API in which kubelet or cri-dockerd asks",
    why="neither of them negotiates the version",
)
def docker_api(given: RuleInput) -> Iterator[Finding]:
    docker, (engine, client) = given.config.runtime.docker, _sides(given)
    if not docker or not engine or not client:
        return
    if numbers(client.api) > numbers(engine.api):
        yield Finding(
            _DOCKER,
            f"{client.name} speaks version {client.api} of Docker's API, and Docker {minor(docker.version)} only up to "
            f"{engine.api}",
            f"choose Docker {_first_with(client.api)} or later",
        )
    elif numbers(client.api) < numbers(engine.least_api) and not can_lower_api(docker.version):
        yield Finding(
            _DOCKER,
            f"{client.name} speaks version {client.api} of Docker's API, and Docker {minor(docker.version)} only from "
            f"{engine.least_api} on",
            "choose an older Docker",
        )


@rule(
    "docker-api-lowered",
    WARNING,
    "Docker should answer the version of its API in which kubelet or cri-dockerd asks without a setting",
    why="Docker supports older versions by best effort only",
)
def docker_api_lowered(given: RuleInput) -> Iterator[Finding]:
    docker, (engine, client) = given.config.runtime.docker, _sides(given)
    least = least_api(docker.version, client) if docker else None
    if docker and engine and client and least:
        lines = table("docker")["lines"]
        fitting = [
            line
            for line, row in lines.items()
            if numbers(row["least_api"]) <= numbers(least) <= numbers(row["api"])
            and numbers(line) < numbers(engine.line)
        ]
        name, asked = minor(docker.version), f"{client.name} speaks version {client.api} of Docker's API"
        yield Finding(
            _DOCKER,
            f"{asked}, which Docker {name} refuses by default: imagegen sets min-api-version to {least}",
            f"choose Docker {fitting[-1]}" if client.name.startswith(DOCKERSHIM) else "choose a later cri_dockerd",
        )


@rule(
    "docker-sandbox-image",
    WARNING,
    "User data should name the sandbox image of Docker nodes up to Kubernetes 1.23",
    why="kubeadm writes its own image for kubelet, and kubelet takes the last of two values",
)
def docker_sandbox_image(given: RuleInput) -> Iterator[Finding]:
    docker, version = given.config.runtime.docker, given.config.kubernetes.version
    row = table("kubernetes")["minors"].get(minor(version))
    if docker and not docker.cri_dockerd and row and row["dockershim"]:
        image = given.config.kubernetes.pause_image or row["pause"]
        yield Finding(
            ("runtime", "docker"),
            f"kubeadm {minor(version)} gives kubelet its own sandbox image, which may not run on this Windows release",
            f'write pod-infra-container-image: "{image}" into nodeRegistration.kubeletExtraArgs of the user data',
        )


def _sides(given: RuleInput) -> tuple[Engine | None, Client | None]:
    docker = given.config.runtime.docker
    if docker is None:
        return None, None
    return find_engine(docker.version), find_client(given.config.kubernetes.version, docker.cri_dockerd)


def _first_with(api: str) -> str:
    """The first line that answers this version."""
    return next(str(line) for line, row in table("docker")["lines"].items() if numbers(row["api"]) >= numbers(api))
