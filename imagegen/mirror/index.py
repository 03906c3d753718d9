"""The index of a mirror, `index.json`, and a mirror in a folder of this machine.

Several runs may fill one mirror: each adds its entries to the newest index. An index is untrusted input. A file appears
under its name only when all its bytes are on the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pydantic

from imagegen.base.errors import PublishError, RefusedError, VerificationError
from imagegen.base.files import locking, open_regular, read_file, scratch_folder
from imagegen.oci.names import INDEX, Index, IndexedFile, IndexedImage
from imagegen.providers.storage import FileStore, StoredFile

if TYPE_CHECKING:
    from imagegen.providers.storage import FileStore

_LIMIT_BYTES: Final = 64 * 2**20
_TRIES: Final = 20

EntryT = TypeVar("EntryT", IndexedFile, IndexedImage)


def read_index(store: FileStore) -> tuple[Index, str]:
    """The index of a mirror, and the tag of its version; both empty if there is none."""
    found = store.read(INDEX, _LIMIT_BYTES)
    if found is None:
        return Index(), ""
    try:
        return Index.model_validate_json(found[0]), found[1]
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise RefusedError(
            f"{INDEX} of the mirror is not valid: {place}: {first['msg']}",
            hint=f"restore it, or remove it: the next run writes {INDEX} with what it finds",
        ) from error


def add_to_index(store: FileStore, added: Index) -> None:
    """Add entries. What is listed already with the same bytes keeps its time."""
    for _ in range(_TRIES):
        old, tag = read_index(store)
        merged = Index(files=_merged(old.files, added.files), images=_merged(old.images, added.images))
        if merged == old and tag:
            return
        data = json.dumps(merged.model_dump(mode="json"), indent=1, sort_keys=True).encode() + b"\n"
        if store.replace(INDEX, data, tag):
            return
    raise PublishError(
        f"{INDEX} of the mirror could not be written: other runs changed it {_TRIES} times meanwhile",
        hint="run it again: finished copies are kept",
    )


def _merged(old: Mapping[str, EntryT], added: Mapping[str, EntryT]) -> dict[str, EntryT]:
    kept = {key: old[key] for key, entry in added.items() if key in old and _is_same(old[key], entry)}
    return {**old, **added, **kept}


def _is_same(one: EntryT, other: EntryT) -> bool:
    return one.model_dump(exclude={"when"}) == other.model_dump(exclude={"when"})


# In the mirror itself: a file can be moved into its place only within one file system.
_PARTS: Final = ".imagegen-mirror-"
_LOCK: Final = ".imagegen-mirror.lock"
_FILE_MODE: Final = 0o644
_CHUNK_BYTES: Final = 2**20


@contextlib.contextmanager
def open_folder(folder: Path, *, writes: bool) -> Iterator[FileStore]:
    """The mirror in this folder. If the run `writes`, the folder is made, and parts of killed runs are removed."""
    try:
        if not writes:
            yield _Folder(folder.resolve(), folder)
            return
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder, _PARTS) as parts:
            yield _Folder(folder.resolve(), parts)
    except OSError as error:
        raise RefusedError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}",
            hint=f"check free space and permissions of {folder}",
        ) from error


class _Folder:
    def __init__(self, root: Path, parts: Path) -> None:
        self._root = root
        self._parts = parts

    def _at(self, path: str) -> Path:
        file = self._root / path
        # A link in the mirror could lead elsewhere.
        if not file.resolve().is_relative_to(self._root):
            raise RefusedError(f"{file} leads out of the mirror {self._root}", hint="remove the link")
        return file

    def find(self, path: str) -> StoredFile | None:
        try:
            file = self._at(path)
            with open_regular(file, str(file), RefusedError) as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
                return StoredFile(os.fstat(opened.fileno()).st_size, digest)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put(self, path: str, file: Path, sha256: str) -> None:
        part, digest = self._parts / secrets.token_hex(16), hashlib.sha256()
        with file.open("rb") as source, part.open("wb") as copy:
            while data := source.read(_CHUNK_BYTES):
                digest.update(data)
                copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
        if digest.hexdigest() != sha256:
            raise VerificationError(f"{self._root / path} would have sha256 {digest.hexdigest()}, not {sha256}")
        self._move(part, path)

    def read(self, path: str, limit: int) -> tuple[bytes, str] | None:
        try:
            data = read_file(self._at(path), limit=limit, error=RefusedError)
        except FileNotFoundError:
            return None
        return data, hashlib.sha256(data).hexdigest()

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        with locking(self._root / _LOCK):
            found = self.read(path, 2**30)
            if (found[1] if found else "") != tag:
                return False
            part = self._parts / secrets.token_hex(16)
            with part.open("wb") as copy:
                copy.write(data)
                copy.flush()
                os.fsync(copy.fileno())
            self._move(part, path)
            return True

    def _move(self, part: Path, path: str) -> None:
        file = self._at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(_FILE_MODE)
        part.replace(file)
