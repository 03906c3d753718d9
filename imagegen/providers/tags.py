"""The tags of an image: identity, labels, run, and the versions of components. Pure."""

import dataclasses
import datetime
import textwrap
from collections.abc import Mapping

IMAGE_ID = "imagegen_image_id"
LABEL_PREFIX = "imagegen_label_"
RUN_ID = "imagegen_run_id"
EXPIRES_AT = "imagegen_expires_at"
# The expiry of a finished image, where a tag can be replaced but not removed.
NEVER = "never"
# The verdict on the report of the machine from which the image was captured; without the tag there is none.
REPORT = "imagegen_report"
ACCEPTED = "accepted"
REJECTED = "rejected"
# Which of several equal images is used first.
PREFERENCE = {ACCEPTED: 0, "": 1, REJECTED: 2}
NAME = "imagegen_name"
# Which imagegen ran the build. Packer without imagegen writes none.
VERSION = "imagegen_version"
_AND = "+"
# The tags of the components that every image has; a test compares them with a rendered template.
COMPONENT_TAGS = frozenset({"containerd_version", "kubernetes_version", "cloudbase_init_version"})
# The tags of the components that options add: reserved in every image.
OPTION_TAGS = frozenset({"csi_proxy_version", "gmsa_version", "openssh_version", "wins_version"})


@dataclasses.dataclass(frozen=True)
class ImageTags:
    """The tags of an image in addition to those in the templates."""

    versions: Mapping[str, str]
    """By component: the templates write each version into a tag `<component>_version`."""
    others: Mapping[str, str]
    """By name: the operator's own tags, and tags that several components share as `a=1 b=2`."""

    def __len__(self) -> int:
        return len(self.versions) + len(self.others)


def make_tags(own: Mapping[str, str], versions: Mapping[str, str], room: int) -> ImageTags:
    """One tag for each version. Where these are more than `room`, all but the most used components share tags."""
    if len(own) + len(versions) <= room:
        return ImageTags(versions, own)
    # Users of image-builder expect these tags.
    single = {name: version for name, version in versions.items() if name in ("kubernetes", "containerd")}
    further = [f"{name}={version}" for name, version in versions.items() if name not in single]
    # Every cloud allows 256 characters.
    values = textwrap.wrap(" ".join(further), 256, break_long_words=False, break_on_hyphens=False)
    if len(values) == len(further):
        return ImageTags(versions, own)
    shared = {
        f"imagegen_versions_{number}" if number > 1 else "imagegen_versions": text
        for number, text in enumerate(values, 1)
    }
    return ImageTags(single, {**own, **shared})


def run_ids(value: str) -> list[str]:
    """The runs that a tag names: the run that created the image, and the runs that wait for it."""
    return value.split(_AND)


def shared_id(value: str, run_id: str) -> str:
    """The value of the tag when this run waits for the image too. The newest run is first: old ones are cut off."""
    # An id has about 25 characters, and every cloud allows 256.
    return _AND.join([run_id, *run_ids(value)][:8])


def is_unjudged(tags: Mapping[str, str], now: datetime.datetime) -> bool:
    """Whether the image of a build of imagegen expired before anybody judged it.

    Without imagegen, Packer asks nobody: such an image may be in use.
    """
    expires_at = tags.get(EXPIRES_AT, NEVER)
    is_expired = expires_at != NEVER and expires_at < now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return is_expired and VERSION in tags and not tags.get(REPORT)


def copied_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of a copy: it never expires, and its report is accepted, because only accepted images are copied."""
    return {**tags, **({EXPIRES_AT: NEVER} if EXPIRES_AT in tags else {}), REPORT: ACCEPTED}


def is_same_image(tags: Mapping[str, str], image_id: str, labels: Mapping[str, str]) -> bool:
    """Whether an image has this identity and exactly these labels: a rehearsal never uses a production image."""
    return tags.get(IMAGE_ID) == image_id and labels_of(tags) == dict(labels)


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The labels of the run that built an image."""
    return {name.removeprefix(LABEL_PREFIX): value for name, value in tags.items() if name.startswith(LABEL_PREFIX)}
