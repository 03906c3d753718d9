"""The tags of an image: those by which it is recognised as a plan's, and those of its components' versions. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE_ID = "imagegen_image_id"
LABEL_PREFIX = "imagegen_label_"
RUN_ID = "imagegen_run_id"
EXPIRES_AT = "imagegen_expires_at"
# What the expiry of a finished image says where a tag can be replaced and not taken away.
NEVER = "never"
# What became of the report of the machine that the image was made of; an image without it was judged by nobody.
REPORT = "imagegen_report"
ACCEPTED = "accepted"
REJECTED = "rejected"
_AND = "+"
# Of some 25 characters each; every cloud takes 256.
_MOST_RUNS = 8
_LONGEST_VALUE = 256
# The tags of the components that every image has; a test holds them against a rendered tree.
COMPONENT_TAGS = frozenset({"containerd_version", "kubernetes_version", "cloudbase_init_version"})
# Whoever comes from image-builder looks for a tag of each of these.
_ALWAYS_SINGLE = ("kubernetes", "containerd")


@dataclasses.dataclass(frozen=True)
class ImageTags:
    """The tags of an image beside those that the templates write of themselves."""

    versions: Mapping[str, str]
    """By component: the templates write each into a tag `<component>_version`."""
    others: Mapping[str, str]
    """By the tag's name: the operator's own, and those that further components share as `a=1 b=2`."""

    def __len__(self) -> int:
        return len(self.versions) + len(self.others)


def make_tags(own: Mapping[str, str], versions: Mapping[str, str], room: int) -> ImageTags:
    """Each version in a tag of its own. Where there is no room for so many tags, further components share some."""
    if len(own) + len(versions) <= room:
        return ImageTags(versions, own)
    single = {name: version for name, version in versions.items() if name in _ALWAYS_SINGLE}
    further = [f"{name}={version}" for name, version in versions.items() if name not in single]
    values: list[str] = []
    for item in further:
        if values and len(f"{values[-1]} {item}") <= _LONGEST_VALUE:
            values[-1] += f" {item}"
        else:
            values.append(item)
    if len(values) == len(further):
        return ImageTags(versions, own)
    names = ["imagegen_versions", *(f"imagegen_versions_{number}" for number in range(2, len(values) + 1))]
    return ImageTags(single, {**own, **dict(zip(names, values, strict=True))})


def run_ids(value: str) -> list[str]:
    """The runs that a tag names: whose it is, and whoever waits for it besides."""
    return value.split(_AND)


def shared_id(value: str, run_id: str) -> str:
    """The tag's value once this run waits for it too; the newest come first, for a tag has an end."""
    return _AND.join([run_id, *run_ids(value)][:_MOST_RUNS])


def copied_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The same tags on a copy, which is to stay. Only what was accepted is copied, whatever the source's tags say."""
    kept = {**tags, EXPIRES_AT: NEVER} if EXPIRES_AT in tags else dict(tags)
    return {**kept, REPORT: ACCEPTED}


def is_same_image(tags: Mapping[str, str], image_id: str, labels: Mapping[str, str]) -> bool:
    """Same identity and exactly the same labels: a rehearsal's image is not production's, nor the other way round."""
    worn = {key.removeprefix(LABEL_PREFIX): value for key, value in tags.items() if key.startswith(LABEL_PREFIX)}
    return tags.get(IMAGE_ID) == image_id and worn == dict(labels)
