"""A folder of manifests, one JSON file each: `<name>/<target>/<start of the id>.json`. Touches that folder only, and
single files of manifests that somebody copied from one."""

import collections
import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pydantic

from imagegen.base.canonical import digest
from imagegen.base.errors import ConflictError, Problem
from imagegen.base.files import read_file, write_file
from imagegen.base.lines import counted
from imagegen.base.locks import locked
from imagegen.record.manifest import ImageManifest, RecordedImage, merge
from imagegen.record.reading import InvalidDocument, parse_json, parse_model, read_bytes, shown
from imagegen.record.report import GuestReport

LOCK_WAIT_S = 60.0
# The report of a machine with thousands of files has a few megabytes.
LIMIT_BYTES: Final = 64 * 2**20
# The documents about a manifest, which `imagegen attest` writes beside it: the ends of their names.
ATTESTATION: Final = ".provenance.json"
SBOM: Final = ".cdx.json"


@dataclasses.dataclass(frozen=True)
class Listing:
    """The manifests in a store."""

    records: tuple[ImageManifest, ...]
    bad: tuple[ConflictError, ...]

    def reject_bad(self) -> None:
        """Raise a ConflictError that names every file which is not a valid manifest."""
        if self.bad:
            details = [line for error in self.bad for line in (error.message, *(f"  {text}" for text in error.details))]
            raise ConflictError(
                f"{counted(len(self.bad), 'file')} in the store cannot be read as a manifest",
                hint=self.bad[0].hint,
                details=details,
            )


@dataclasses.dataclass(frozen=True)
class LocalStore:
    """Manifests in a local folder. Several runs may write to it at once."""

    root: Path

    def path(self, name: str, target: str, image_id: str, labels: Mapping[str, str]) -> Path:
        """The file of a manifest. Labels are part of its name: a rehearsal never overwrites a production manifest."""
        mark = f"+{digest(dict(labels))[:8]}" if labels else ""
        return self.root / name / target / f"{image_id[:16]}{mark}.json"

    def put(self, manifest: ImageManifest) -> ImageManifest:
        """Store a manifest, merged with an existing one, and return it. ConflictError if they contradict each other."""
        with self._locked():
            path = self._path_of(manifest)
            old = _read(path)
            kept = manifest if old is None else merge(old, manifest)
            if kept != old:
                write_file(path, manifest_bytes(kept))
        return kept

    def get(self, name: str, target: str, image_id: str, labels: Mapping[str, str]) -> ImageManifest | None:
        """The manifest of an image; None if there is none."""
        found = _read(self.path(name, target, image_id, labels))
        return found if found is not None and found.image_id == image_id else None

    def list(self) -> Listing:
        """All manifests, newest first, and the errors of all files that are not valid manifests."""
        records: list[ImageManifest] = []
        bad: list[ConflictError] = []
        files = [path for path in self.root.glob("*/*/*.json") if not path.name.endswith((ATTESTATION, SBOM))]
        for path in sorted(files):
            try:
                records += filter(None, [_read(path)])
            except ConflictError as error:
                bad.append(error)
        records.sort(key=lambda manifest: manifest.created, reverse=True)
        return Listing(tuple(records), tuple(bad))

    def annotate(self, manifest: ImageManifest, key: str, value: pydantic.JsonValue) -> ImageManifest:
        """Add a note to the stored manifest of this image, and return the new manifest."""
        with self._locked():
            path = self._path_of(manifest)
            old = _read(path)
            if old is None or old.image_id != manifest.image_id:
                raise ConflictError(f"{manifest.name} has no manifest on {manifest.target} to add {key} to")
            noted = old.model_copy(update={"notes": {**old.notes, key: value}})
            write_file(path, manifest_bytes(noted))
        return noted

    def _path_of(self, manifest: ImageManifest) -> Path:
        return self.path(manifest.name, manifest.target, manifest.image_id, manifest.labels)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        # Read, merge and write under one lock: two runs that end together must not lose each other's regions.
        # No message while waiting: another run holds the lock only while it writes a few kilobytes.
        return locked(self.root / ".lock", wait_s=LOCK_WAIT_S, waiting=lambda: None)


def manifest_bytes(manifest: ImageManifest) -> bytes:
    """The manifest as JSON. Keys are sorted, so that equal manifests are byte-identical."""
    return json.dumps(manifest.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n"


def _read(path: Path) -> ImageManifest | None:
    try:
        return ImageManifest.model_validate_json(read_file(path, limit=LIMIT_BYTES, error=ConflictError))
    except FileNotFoundError:
        return None
    except pydantic.ValidationError as error:
        raise ConflictError(
            f"{path} is not a valid manifest for this version of imagegen",
            hint="move it out of the store, keep it, and run this again",
            details=[f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()],
        ) from None


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
