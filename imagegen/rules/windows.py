"""Windows with Kubernetes, with container images and with its own fixes, and what sharing it asks for. Pure."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from imagegen.catalog.facts import known, numbers, table
from imagegen.rules.rule import ERROR, WARNING, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.rules.rule import Asked

_IMAGES: YamlPath = ("windows", "container_images")


@rule("windows-kubernetes-refused", ERROR, "Kubernetes runs on the Windows release")
def windows_kubernetes_refused(asked: Asked) -> Iterator[Finding]:
    yield from _verdict(asked, "refused")


@rule("windows-kubernetes-untested", WARNING, "Somebody tests this Kubernetes on the Windows release")
def windows_kubernetes_untested(asked: Asked) -> Iterator[Finding]:
    yield from _verdict(asked, "untested")


def _verdict(asked: Asked, verdict: str) -> Iterator[Finding]:
    release, minors = asked.config.windows.release, table("kubernetes")["minors"]
    found = known(minors, asked.config.kubernetes.version)
    row = found.row["windows"].get(release) if found else None
    if not found or not row or row["verdict"] != verdict:
        return
    releases = [name for name, other in found.row["windows"].items() if other["verdict"] == "tested"]
    others = [name for name, other in minors.items() if other["windows"].get(release, {}).get("verdict") == "tested"]
    choices = [f"Windows {' or '.join(releases)}"] if releases else []
    choices += [f"Kubernetes {others[0]} to {others[-1]}"] if others else []
    yield Finding(("windows", "release"), row["reason"], f"tested together: {'; or '.join(choices)}")


@rule("container-image-release", ERROR, "The host runs the containers of the container images")
def container_image_release(asked: Asked) -> Iterator[Finding]:
    release = table("windows")["releases"].get(asked.config.windows.release)
    if release is None:
        return
    runs = _runs(asked)
    for index, image in enumerate(asked.config.windows.container_images):
        of = _release_of(image)
        if of and of not in runs:
            message = f"{image} is of Windows {of}, whose containers {release['title']} does not run"
            tags = ", ".join(tag for tag, name in table("images")["tags"].items() if name in runs)
            yield Finding((*_IMAGES, index), message, f"choose an image with one of the tags {tags}")


@rule("container-image-tag-known", WARNING, "It is known to which release a container image belongs")
def container_image_tag_known(asked: Asked) -> Iterator[Finding]:
    for index, image in enumerate(asked.config.windows.container_images):
        if _release_of(image) is None:
            message = f"nothing says of which Windows release {image} is, so nobody knows whether the host runs it"
            hint = f"name a tag: {', '.join(table('images')['tags'])}, or one with the build, as 10.0.20348.1"
            yield Finding((*_IMAGES, index), message, hint)


def _release_of(image: str) -> str | None:
    """The release that a container image's tag names, in its own word or by its build."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if of := table("images")["tags"].get(tag.partition("-")[0]):
        return str(of)
    builds = {str(row["build"]): name for name, row in table("windows")["releases"].items()}
    parts = tag.split(".")
    return builds.get(parts[2]) if parts[:2] == ["10", "0"] and len(parts) > 2 else None


def _runs(asked: Asked) -> set[str]:
    """The releases whose containers the host runs: with a hypervisor between them, all older ones too."""
    windows, releases = asked.config.windows, table("windows")["releases"]
    host = releases[windows.release]
    runs = set(host["runs_images_of"])
    if windows.hyper_v == "isolation":
        runs |= {name for name, row in releases.items() if row["build"] <= host["build"]}
    return runs


@rule("pause-for-windows", WARNING, "The sandbox image has a layer for the Windows release")
def pause_for_windows(asked: Asked) -> Iterator[Finding]:
    image, release = asked.config.kubernetes.pause_image, table("windows")["releases"].get(asked.config.windows.release)
    if image is None or release is None or release["pause_at_least"] is None:
        return
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    least = release["pause_at_least"]
    # Only what is called pause is numbered like it.
    if name == "pause" and numbers(tag) and numbers(tag) < numbers(least):
        hint = f"choose pause {least} or later, or leave pause_image out"
        yield Finding(("kubernetes", "pause_image"), release["pause_note"], hint)


@rule("hot-fix-review", WARNING, "Registry fixes are looked at again in time")
def hot_fix_review(asked: Asked) -> Iterator[Finding]:
    for fix in table("windows")["releases"].get(asked.config.windows.release, {}).get("hot_fixes", []):
        if datetime.date.fromisoformat(fix["expires"]) < asked.today:
            what = f"the registry value {fix['name']} ({fix['reason']})"
            message = f"{what} was to be looked at again by {fix['expires']}: Windows may not need it any more"
            yield Finding(("windows", "release"), message, "use an imagegen with a newer catalogue")


@rule("updates-exclude", ERROR, "An excluded update would otherwise be installed")
def updates_exclude(asked: Asked) -> Iterator[Finding]:
    updates = asked.config.windows.updates
    if updates is None:
        return
    for index, kb in enumerate(updates.exclude):
        path: YamlPath = ("windows", "updates", "exclude", index)
        if kb in updates.kbs:
            yield Finding(path, f"{kb} is asked for under kbs and excluded here", "leave one of both out")
        elif not updates.categories:
            message = f"only what kbs names is installed, and {kb} is not among it: excluding it does nothing"
            yield Finding(path, message, "leave it out, or name categories")


@rule("licence-acknowledged", ERROR, "Windows is shared only by who answers for its licence")
def licence_acknowledged(asked: Asked) -> Iterator[Finding]:
    for target, settings in asked.config.targets.named().items():
        sharing = settings.publish.sharing
        if sharing and not sharing.licence_acknowledged:
            message = (
                "an image of Windows goes to others only under the terms of Windows' licence, which you answer for"
            )
            hint = "read them, and say licence_acknowledged: true; or leave sharing out"
            yield Finding(("targets", target, "publish", "sharing"), message, hint)
