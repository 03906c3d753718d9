"""Reads the manifest that documents are about, with the digest of its bytes. Touches only the given file."""

import collections
import dataclasses
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from imagegen.base.errors import Problem
from imagegen.record.manifest import ImageManifest, RecordedImage
from imagegen.record.reading import InvalidDocument, parse_json, parse_model, read_bytes, shown
from imagegen.record.report import GuestReport
from imagegen.record.store import LIMIT_BYTES

HINT: Final = "get the manifest from the store of the build again: `imagegen manifest list` shows what is there"
_STORED_NAME: Final = re.compile(r"([0-9a-f]{16})(\+[0-9a-f]{8})?\.json")


@dataclasses.dataclass(frozen=True)
class ManifestFile:
    """A manifest, and the file that it was read from."""

    path: Path
    sha256: str
    """Of the bytes of the file."""
    manifest: ImageManifest

    @property
    def images(self) -> list[RecordedImage]:
        """The images in the cloud: the built one, and one for each region where it is published."""
        published = self.manifest.published.images if self.manifest.published else []
        built = [self.manifest.built] if self.manifest.built else []
        return [*(image for image in built if image.id not in {one.id for one in published}), *published]


def read_manifest(path: Path) -> ManifestFile:
    """The manifest in a file. Anything else is an InvalidDocument."""
    data = read_bytes(path, limit=LIMIT_BYTES, hint=HINT)
    manifest = parse_model(parse_json(data, str(path), HINT), ImageManifest, str(path), HINT)
    return ManifestFile(path, hashlib.sha256(data).hexdigest(), manifest)


def read_guest_report(file: ManifestFile) -> GuestReport | None:
    """The report of the image's machine; None if the manifest has none."""
    if file.manifest.report is None:
        return None
    return parse_model(file.manifest.report, GuestReport, f"{file.path}: report", HINT)


def windows_version(file: ManifestFile) -> str | None:
    """The version of Windows, as the machine reported it: `10.0.20348.4297`."""
    report = read_guest_report(file)
    numbers = [report.machine.get("build"), report.machine.get("ubr")] if report else [None]
    return None if None in numbers else ".".join(["10.0", *map(str, numbers)])


def find_contradictions(file: ManifestFile) -> Iterator[Problem]:
    """Where the parts of a manifest, or its file name, contradict each other."""
    manifest, place = file.manifest, str(file.path)
    named = _STORED_NAME.fullmatch(file.path.name)
    if named and not manifest.image_id.startswith(named[1]):
        message = f"is {manifest.image_id}, but the file has the name of the image {named[1]}"
        yield Problem(place, 0, "image_id", message, HINT)
    if not file.images:
        yield Problem(place, 0, "built", "no image was built", "run `imagegen build`, which completes the manifest")
    try:
        report = read_guest_report(file)
    except InvalidDocument as invalid:
        yield from invalid.problems
        return
    if report is None:
        return
    for key, found, expected in (
        ("name", report.name, manifest.name),
        ("target", report.target, manifest.provider),
    ):
        if found != expected:
            message = f"is {shown(found)}, but the manifest is of {shown(expected)}"
            yield Problem(place, 0, f"report.{key}", message, HINT)
    [(most, count)] = collections.Counter(one.id for one in report.resources).most_common(1) or [("", 0)]
    if count > 1:
        yield Problem(place, 0, "report.resources", f"{shown(most)} is listed more than once", HINT)
