"""A folder of manifests, one JSON file each: `<name>/<target>/<start of the id>.json`. Touches that folder only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic

from imagegen.build.folder_lock import locked
from imagegen.errors import ConflictError
from imagegen.manifest.merge import merge
from imagegen.manifest.model import ImageManifest
from imagegen.plan.model import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCK_WAIT_S = 60.0
LOCK_FILE = ".lock"


class LocalStore:
    """Records under one folder. Several runs may write to it at once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, name: str, target: str, image_id: str, labels: Mapping[str, str]) -> Path:
        """Labelled images have files of their own: a rehearsal's record never meets production's."""
        mark = f"+{hashlib.sha256(canonical(dict(labels))).hexdigest()[:8]}" if labels else ""
        return self._root / name / target / f"{image_id[:16]}{mark}.json"

    def put(self, manifest: ImageManifest) -> ImageManifest:
        """Record it, or continue the record that is there; what is stored now. ConflictError if the two disagree."""
        with self._locked():
            path = self._path_of(manifest)
            old = _read(path)
            kept = manifest if old is None else merge(old, manifest)
            if kept != old:
                _write(path, kept)
        return kept

    def get(self, name: str, target: str, image_id: str, labels: Mapping[str, str]) -> ImageManifest | None:
        """The record of an image; None when there is none."""
        found = _read(self.path(name, target, image_id, labels))
        return found if found is not None and found.image_id == image_id else None

    def list(self, name: str | None = None, target: str | None = None) -> tuple[ImageManifest, ...]:
        """All records, or a name's or a target's; newest first."""
        found = [_read(path) for path in sorted(self._root.glob(f"{name or '*'}/{target or '*'}/*.json"))]
        records = [manifest for manifest in found if manifest is not None]
        return tuple(sorted(records, key=lambda manifest: manifest.created, reverse=True))

    def annotate(self, manifest: ImageManifest, key: str, value: pydantic.JsonValue) -> ImageManifest:
        """Add a note to the record of this image as it is stored now; what is stored afterwards."""
        with self._locked():
            path = self._path_of(manifest)
            old = _read(path)
            if old is None or old.image_id != manifest.image_id:
                raise ConflictError(f"there is no record of {manifest.name} on {manifest.target} to add {key} to")
            noted = old.model_copy(update={"notes": {**old.notes, key: value}})
            _write(path, noted)
        return noted

    def _path_of(self, manifest: ImageManifest) -> Path:
        return self.path(manifest.name, manifest.target, manifest.image_id, manifest.labels)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Reading, merging and writing is one step: of two runs that finish together, none may lose the other's regions.
        with locked(self._root / LOCK_FILE, wait_s=LOCK_WAIT_S, waiting=_wait_silently):
            yield


def manifest_bytes(manifest: ImageManifest) -> bytes:
    """The manifest as it is written: sorted, so that two stores of one state are byte-identical."""
    return json.dumps(manifest.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n"


def _wait_silently() -> None:
    """Another run writes a few kilobytes: nobody needs to be told."""


def _read(path: Path) -> ImageManifest | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return ImageManifest.model_validate_json(text)
    except pydantic.ValidationError as error:
        details = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
        raise ConflictError(
            f"{path} is not a manifest that this version reads",
            hint="keep it, move it out of the store, and run this again",
            details=details,
        ) from None


def _write(path: Path, manifest: ImageManifest) -> None:
    """Whole or not at all, also when the machine stops in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(manifest_bytes(manifest))
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's 0600 is for secrets; a manifest holds none, and others read it.
        new.chmod(0o644)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
