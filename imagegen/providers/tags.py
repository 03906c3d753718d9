"""The tags by which a cloud's image is recognised as a plan's: the templates write them, reruns read them. Pure."""

from __future__ import annotations

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
# Of some 25 characters each; both clouds take 256.
_MOST_RUNS = 8


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
