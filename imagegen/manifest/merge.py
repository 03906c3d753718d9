"""Two records of one image as one: how it was made is told once, where it is and what it reported grows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.errors import ConflictError
from imagegen.manifest.model import ImageManifest, RecordedPublish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.manifest.model import RecordedArtifact


def merge(old: ImageManifest, new: ImageManifest) -> ImageManifest:
    """The old record continued by a later run for the same image."""
    refuse_conflict(old, new)
    rebuilt = new.built is not None and (old.built is None or old.built.id != new.built.id)
    making = new if rebuilt else old
    report = new.report if new.report is not None else old.report
    return ImageManifest(
        name=old.name,
        image_id=old.image_id,
        target=old.target,
        provider=old.provider,
        labels=old.labels,
        created=making.created,
        imagegen_version=making.imagegen_version,
        inputs=making.inputs,
        versions=making.versions,
        tools=making.tools,
        built=new.built or old.built,
        published=_published(old.published, new.published),
        report=report,
        report_missing=None if report is not None else new.report_missing,
        notes={**old.notes, **new.notes},
    )


def refuse_conflict(old: ImageManifest, new: ImageManifest) -> None:
    """One place holds one image: the same identity, made of the same bytes, with the same labels."""
    place = f"{new.name} on {new.target}"
    for what, was, now in (("image id", old.image_id, new.image_id), ("labels", old.labels, new.labels)):
        if was != now:
            raise ConflictError(
                f"the record of {place} has {what} {was}, and this image has {now}",
                hint="keep the record: it may be of an image in use; name this image otherwise, or use another store",
            )
    differing = _differing(old.inputs.artifacts, new.inputs.artifacts)
    if differing:
        raise ConflictError(
            f"the record of {place} says that {new.image_id[:16]} was made of other bytes",
            hint="one identity can have one set of inputs only: find out which of the two locks is right",
            details=differing,
        )


def _differing(old: Mapping[str, RecordedArtifact], new: Mapping[str, RecordedArtifact]) -> list[str]:
    lines = []
    for name in sorted(old.keys() | new.keys()):
        was, now = (side[name].sha256 if name in side else "not used" for side in (old, new))
        if was != now:
            lines.append(f"{name}: recorded {was}, now {now}")
    return lines


def _published(old: RecordedPublish | None, new: RecordedPublish | None) -> RecordedPublish | None:
    if old is None or new is None:
        return new or old
    # A region that an earlier run published to keeps its image: no run takes one away.
    images = {image.region: image for image in (*old.images, *new.images)}
    return RecordedPublish(version=new.version, images=list(images.values()))
