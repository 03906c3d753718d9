"""The cache of downloads: files by their sha256, and which of them a URL had. One per user; several runs may share it.

Nobody trusts a name in it: a file is hashed each time it is used, and removed if it is not what its name says.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import pydantic

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.files import holding, is_at, locking_folder, read_file, remove_unless_held, replacing, scratch_folder
from imagegen.fetch.download import LIMIT_BYTES, LONGEST_HEADER, Fetched, Version, writing
from imagegen.fetch.request import shown_url
from imagegen.steps.resource import Sha256, Strict

FOLDER_VARIABLE: Final = "IMAGEGEN_CACHE_DIR"
SIZE_VARIABLE: Final = "IMAGEGEN_CACHE_GB"
_DEFAULT_GB: Final = 20
_FILES, _URLS, _PARTS = "sha256", "urls", "parts-"
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_LARGEST_RECORD: Final = 16 * 1024
_HASHING: Final = 4
Header = Annotated[str, pydantic.Field(max_length=LONGEST_HEADER)]


class UrlRecord(Strict):
    """What a URL had when it was last downloaded. The URL is without its query, which may be a secret."""

    url: Annotated[str, pydantic.Field(max_length=4096)]
    sha256: Sha256
    size: Annotated[int, pydantic.Field(ge=0, le=LIMIT_BYTES)]
    etag: Header = ""
    last_modified: Header = ""
    redirected_to: Annotated[str, pydantic.Field(max_length=4096)] = ""
    lock: Annotated[str, pydantic.Field(max_length=4096)] = ""
    """The lock for which it was downloaded."""

    @property
    def version(self) -> Version:
        return Version(self.etag, self.last_modified)


@dataclasses.dataclass(frozen=True)
class CachedFile:
    """A file of the cache. It has its size and its name, and nobody has read it."""

    sha256: str
    size: int
    used: float
    """When it was last used, in seconds since 1970."""
    records: tuple[UrlRecord, ...] = ()
    """The URLs that had it."""


def find_folder(environ: Mapping[str, str], default: Path) -> Path:
    """The folder of the cache."""
    text = environ.get(FOLDER_VARIABLE, "")
    if text and not text.startswith("/"):
        raise ConfigError(
            f"{FOLDER_VARIABLE} is {text[:200]!a}, which is not an absolute path",
            hint=f"set {FOLDER_VARIABLE} to a folder such as {default}, or unset it",
        )
    return Path(text or default)


def size_limit(environ: Mapping[str, str]) -> int:
    """How many bytes the cache may have when a run ends."""
    text = environ.get(SIZE_VARIABLE, "")
    if not text:
        return _DEFAULT_GB * 2**30
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise ConfigError(
            f"{SIZE_VARIABLE} is {text[:40]!a}, which is not a number of GiB",
            hint=f"set {SIZE_VARIABLE} to a whole number, such as {_DEFAULT_GB}, or unset it",
        )
    return int(text) * 2**30


class Cache:
    """The files in one folder. `limit` is their size in bytes; the file that was used longest ago goes first."""

    def __init__(self, folder: Path, limit: int, warn: Callable[[str], object]) -> None:
        self.folder = folder
        self._limit = limit
        self._warn = warn
        self.damaged: set[str] = set()
        """The files that had other bytes when they were used."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Path]:
        """Make the folders, and one for the parts of this run. Parts of killed runs are removed."""
        with writing(self.folder):
            for folder in (self.folder, self.folder / _FILES, self.folder / _URLS):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                _close_to_others(folder)
        with scratch_folder(self.folder, _PARTS) as parts:
            try:
                yield parts
            finally:
                self.trim()

    @contextlib.contextmanager
    def use(self, sha256: str) -> Iterator[Path | None]:
        """The file with this digest, hashed now; None if there is none. Nothing removes it while the block runs."""
        file = self.folder / _FILES / sha256
        try:
            # A link would lead to a file that others may change.
            handle = os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except OSError:
            yield None
            return
        with handle, holding(handle, file) as is_there:
            if is_there and stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                if _digest_of(handle) == sha256:
                    # In a cache that may only be read, nothing is removed, so that no time of use is needed.
                    with contextlib.suppress(OSError):
                        os.utime(handle.fileno())
                    yield file
                    return
                self._remove_damaged(handle, file)
        yield None

    def _remove_damaged(self, handle: io.BufferedReader, file: Path) -> None:
        done = "it is removed"
        try:
            with self._changing():
                # Another run may have put a whole file into its place.
                if is_at(handle, file):
                    file.unlink()
        except OSError as error:
            done = f"it is not used, but cannot be removed: {error.strerror or error}"
        self.damaged.add(file.name)
        self._warn(f"{file} has other bytes than its name says: {done}")

    def _changing(self) -> contextlib.AbstractContextManager[None]:
        """Of all runs one at a time removes and replaces files. Never for long."""
        return locking_folder(self.folder / _FILES)

    @contextlib.contextmanager
    def add(self, part: Path, sha256: str) -> Iterator[Path]:
        """Move a file with this digest into the cache, and keep it there while the block runs."""
        with contextlib.ExitStack() as held:
            file = self._move(part, sha256, held)
            self.trim()
            yield file

    def _move(self, part: Path, sha256: str, held: contextlib.ExitStack) -> Path:
        """The file, held: the part, or the one that is there already. Other runs may hold that one, and would go on
        with a file that nothing keeps any more."""
        file = self.folder / _FILES / sha256
        with writing(file):
            while not (there := held.enter_context(self.use(sha256))):
                handle = held.enter_context(part.open("rb"))
                with self._changing():
                    # Another run has just put it there. It is not trusted either.
                    if os.access(file, os.R_OK, follow_symlinks=False) and file.is_file() and not file.is_symlink():
                        continue
                    held.enter_context(holding(handle, part))
                    os.fchmod(handle.fileno(), 0o600)
                    part.replace(file)
                return file
            part.unlink()
            return there

    def find(self, url: str) -> UrlRecord | None:
        """What the URL had the last time. A record that cannot be read is none."""
        return _read_record(self._record_file(url))

    def record(self, url: str, fetched: Fetched, lock: str = "") -> None:
        """Store what the URL had, and for which lock it was downloaded."""
        facts = {"url": shown_url(url), "sha256": fetched.sha256, "size": fetched.size, "lock": lock}
        version = dataclasses.asdict(fetched.version)
        record = UrlRecord.model_validate({**facts, **version, "redirected_to": fetched.redirected_to[:4096]})
        with writing(self.folder), replacing(self._record_file(url), mode=0o600) as file:
            file.write(record.model_dump_json().encode())

    def _record_file(self, url: str) -> Path:
        return self.folder / _URLS / f"{hashlib.sha256(url.encode()).hexdigest()}.json"

    def files(self) -> list[CachedFile]:
        """All files, the one that was used longest ago first."""
        records: dict[str, list[UrlRecord]] = {}
        for file in sorted((self.folder / _URLS).glob("*.json")):
            if record := _read_record(file):
                records.setdefault(record.sha256, []).append(record)
        return [dataclasses.replace(one, records=tuple(records.get(one.sha256, ()))) for one in self._scan()]

    def names(self) -> set[str]:
        """The digests of all files. Nobody has read them."""
        return {one.sha256 for one in self._scan()}

    def _scan(self) -> list[CachedFile]:
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder / _FILES) as entries:
            for entry in entries:
                # Another run may remove it meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    # Nothing reads what is not a file, and a pipe could not even be opened.
                    if _DIGEST.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                        found.append(CachedFile(entry.name, status.st_size, status.st_mtime))
        return sorted(found, key=lambda one: (one.used, one.sha256))

    def verify(self, digests: Collection[str]) -> set[str]:
        """Which of these files the cache has, all hashed now. Those in `damaged` are removed."""

        def has(sha256: str) -> bool:
            with self.use(sha256) as file:
                return file is not None

        with concurrent.futures.ThreadPoolExecutor(_HASHING) as pool:
            return {sha256 for sha256, found in zip(digests, pool.map(has, digests), strict=True) if found}

    def remove(self, sha256: str) -> bool:
        """Remove a file, unless a run uses it, and forget the URLs that had it. Whether it is gone."""
        with self._changing():
            if not remove_unless_held(self.folder / _FILES / sha256):
                return False
        for record_file in (self.folder / _URLS).glob("*.json"):
            record = _read_record(record_file)
            if record is None or record.sha256 == sha256:
                record_file.unlink(missing_ok=True)
        return True

    def trim(self) -> None:
        """Remove the files that were used longest ago, until the others are within the limit."""
        files = self._scan()
        size = sum(one.size for one in files)
        for one in files:
            if size <= self._limit:
                return
            if self.remove(one.sha256):
                size -= one.size


def _digest_of(handle: io.BufferedReader) -> str:
    return hashlib.file_digest(handle, "sha256").hexdigest()


def _read_record(file: Path) -> UrlRecord | None:
    try:
        return UrlRecord.model_validate_json(read_file(file, limit=_LARGEST_RECORD))
    except (FileNotFoundError, ConfigError, pydantic.ValidationError):
        return None


def _close_to_others(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise RefusedError(
            f"{folder} is not a folder of this user, so others could change what is in it",
            hint=f"remove it, or set {FOLDER_VARIABLE} to another folder",
        )
    if stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)
