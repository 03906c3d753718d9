"""The rules for Windows: its Kubernetes, container images, registry fixes and updates. Pure."""

import datetime
from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import find_row, minor, numbers, table
from imagegen.config.yaml import YamlPath
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

_WINDOWS_WORDS: Final = ("windows", "nanoserver", "servercore")
# The index of the build in 10.0.20348.1.
_BUILD: Final = 2


KUBERNETES_ON_WINDOWS: Final = (
    rule("windows-kubernetes-refused", ERROR, "Kubernetes must run on the Windows release")(
        lambda given: _verdict(given, "refused")
    ),
    rule("windows-kubernetes-untested", WARNING, "Kubernetes should be tested on the Windows release")(
        lambda given: _verdict(given, "untested")
    ),
)


def _verdict(given: RuleInput, verdict: str) -> Iterator[Finding]:
    release, minors = given.config.windows.release, table("kubernetes")["minors"]
    kubernetes = find_row(minors, given.config.kubernetes.version)
    known_release = table("windows")["releases"].get(release)
    if not kubernetes or not known_release:
        return
    unknown = f"the catalogue does not say whether Kubernetes {kubernetes.minor} runs on {known_release['title']}"
    row = kubernetes.row["windows"].get(release, {"verdict": "untested", "reason": unknown})
    if row["verdict"] != verdict:
        return
    releases = [name for name, other in kubernetes.row["windows"].items() if other["verdict"] == "tested"]
    others = [name for name, other in minors.items() if other["windows"].get(release, {}).get("verdict") == "tested"]
    choices = [f"Windows {' or '.join(releases)}"] if releases else []
    choices += [f"Kubernetes {others[0]} to {others[-1]}"] if others else []
    yield Finding(
        ("windows", "release"),
        row["reason"],
        f"tested together: {'; or '.join(choices)}" if choices else "choose another release",
    )


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
