"""Merges two manifests of one image: keeps how it was made, and adds where it is and what it reported. Pure."""

from collections.abc import Mapping

from imagegen.errors import ConflictError
from imagegen.manifest.model import ImageManifest, RecordedArtifact, RecordedPublish


def merge(old: ImageManifest, new: ImageManifest) -> ImageManifest:
    """The old manifest with what a later run for the same image adds."""
    reject_conflict(old, new)
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


def reject_conflict(old: ImageManifest, new: ImageManifest) -> None:
    """Raise an error unless both manifests have the same identity, inputs and labels."""
    place = f"{new.name} on {new.target}"
    for what, was, now in (("image id", old.image_id, new.image_id), ("labels", old.labels, new.labels)):
        if was != now:
            raise ConflictError(
                f"the manifest of {place} has {what} {was}, but this image has {now}",
                hint="keep the manifest, since its image may be in use; give this image another name or another --out",
            )
    differing = _differing(old.inputs.artifacts, new.inputs.artifacts)
    if differing:
        raise ConflictError(
            f"the manifest of {place} says that {new.image_id[:16]} was made of other artifacts",
            hint="an image id stands for one set of artifacts: find out which of the two locks is right",
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
    # A later run adds regions and never removes the image of an earlier run.
    images = {image.region: image for image in (*old.images, *new.images)}
    return RecordedPublish(version=new.version, images=list(images.values()))
