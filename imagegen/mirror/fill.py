"""Fills a mirror with the artifacts and container images of locks. What it has already is not copied again.

Nothing in a mirror is removed, and no file of another content is replaced. The index is written last. A web server
decodes the path of a request, so a mirror has the decoded name, below the host of the URL. No path leads out of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.lines import counted
from imagegen.base.parallel import results_of, run_all
from imagegen.fetch.http import Web
from imagegen.fetch.request import ArtifactRequest, shown_url
from imagegen.mirror.images import RESUME_HINT, ImageCopier, Origin, Place, Source, WantedImage
from imagegen.mirror.index import add_to_index, open_folder, read_index
from imagegen.oci.names import IMAGES, INDEX, Index, IndexedFile, IndexedImage
from imagegen.plan.context import artifact_requests
from imagegen.providers.storage import storages

if TYPE_CHECKING:
    from imagegen.fetch.lock import Lock, LockedArtifact
    from imagegen.plan.target import PreparedTarget
    from imagegen.providers.storage import FileStore, Storage
    from imagegen.run import Run

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
# What no file system takes, or takes for something else.
_INVALID: Final = re.compile(r"[\x00-\x1f\x7f/\\\ufffd]|^\.{1,2}$|^$")
_LONGEST_NAME: Final = 255
_PLACEHOLDER: Final = re.compile(r"(\{[^{}]*\})")


def file_path(url: str) -> str:
    """Where the file of a URL is: below its host, as `artifacts.mirror` reads it."""
    host, _, path = url.removeprefix("https://").partition("/")
    if not url.startswith("https://") or not _HOST.fullmatch(host) or host in (INDEX, IMAGES):
        raise _invalid(url, "its host")
    if re.search(r"[?#]", path):
        raise _invalid(url, "its query or fragment")
    names = [urllib.parse.unquote(name) for name in path.split("/")]
    for name in names:
        if _INVALID.search(name) or len(name.encode()) > _LONGEST_NAME:
            raise _invalid(url, f"the part {name[:40]!a} of its path" if name else "an empty part of its path")
    return "/".join((host, *names))


def served_path(url: str) -> str:
    """Where a web server has the file, the folder or the template of a URL, below the URL of the mirror.

    A server decodes the path of a request. The placeholders of a template stay."""
    parts = _PLACEHOLDER.split(url.removeprefix("https://").rstrip("/"))
    return "".join(part if at % 2 else _quoted(urllib.parse.unquote(part)) for at, part in enumerate(parts))


def _quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="/:@+~!$&'()*,;=")


def _invalid(url: str, what: str) -> RefusedError:
    return RefusedError(f"{url[:200]!a} cannot be in a mirror because of {what}", hint="use another URL for this file")


def reject_overlaps(paths: Iterable[str]) -> None:
    """Reject a path that is a file here and a folder there."""
    for one, other in itertools.pairwise(sorted(paths, key=lambda path: path.split("/"))):
        if other.startswith(f"{one}/"):
            raise RefusedError(
                f"a mirror cannot have both the file {one} and the file {other} below it",
                hint="use another URL for one of the two",
            )


@dataclasses.dataclass(frozen=True)
class OwnUrl:
    """A URL of the config: its key, and its value, which may be the folder or the template of several files."""

    key: str
    value: str


@dataclasses.dataclass(frozen=True)
class WantedFile:
    """An artifact of a lock, and where it is in a mirror."""

    path: str
    place: Place
    published: str
    """Its public URL, or that of the config."""
    sha256: str
    size: int
    own: OwnUrl | None
    """The key and its value, if its URL is the config's: then `artifacts.mirror` does not replace it."""

    @classmethod
    def of(
        cls, request: ArtifactRequest, locked: LockedArtifact, origin: Origin, overrides: Mapping[str, OwnUrl]
    ) -> WantedFile:
        published = request.url if request.own else request.published
        place = Place(request.url, origin, request.key)
        own = overrides.get(request.key, OwnUrl(request.key, request.url)) if request.own else None
        return cls(file_path(published), place, published, locked.sha256, locked.size, own)


@dataclasses.dataclass(frozen=True)
class Filled:
    """What a run did, or with a dry run what it would do. Paths are those in the mirror."""

    copied: Mapping[str, int]
    """The sizes of the files that were not there, by path."""
    kept: Mapping[str, int]
    copied_images: tuple[str, ...]
    """The images of which something was not there, by name."""
    kept_images: tuple[str, ...]
    own: Mapping[str, str]
    """Where a web server has the files whose URLs are the config's, by the keys of the config: below the URL of the
    mirror. A folder or a template is one there too."""
    images: tuple[IndexedImage, ...]
    """All images of the locks. Those that a dry run would copy are missing."""


def fill(
    files: Iterable[WantedFile],
    images: Sequence[WantedImage],
    store: FileStore,
    source: Source,
    when: str,
    *,
    dry_run: bool,
) -> Filled:
    """Copy what is missing."""
    wanted = _by_path(files)
    compared = run_all(lambda one: _is_there(one, store), [*wanted.values()], "comparing", source.console, source.stop)
    there = results_of(compared, "files", RESUME_HINT)
    missing = [one for one, found in zip(wanted.values(), there, strict=True) if not found]
    copier, index = ImageCopier(store, source, when), read_index(store)[0]
    known = {one.key: copier.find(one, index) for one in images}
    to_pull = [one for one in images if known[one.key] is None]
    entries = [entry for entry in known.values() if entry]
    if not dry_run:
        _check_credentials(missing, source)
        label = f"copying {counted(len(missing), 'file')}"
        copied = run_all(lambda one: _copy(one, store, source), missing, label, source.console, source.stop)
        results_of(copied, "files", RESUME_HINT)
        for one in to_pull:
            entry = copier.copy(one)
            entries.append(entry)
            # A run that is killed now need not copy this image again.
            add_to_index(store, Index(images={one.key: entry}))
        add_to_index(store, _entries(wanted, entries, images, when))
    return Filled(
        copied={one.path: one.size for one in missing},
        kept={one.path: one.size for one in wanted.values() if one not in missing},
        copied_images=tuple(one.name for one in to_pull),
        kept_images=tuple(one.name for one in images if one not in to_pull),
        own={one.own.key: served_path(one.own.value) for one in wanted.values() if one.own},
        images=tuple(sorted(entries, key=lambda one: (one.name, one.manifest))),
    )


def _by_path(files: Iterable[WantedFile]) -> dict[str, WantedFile]:
    """Each file once. Two locks with different bytes for one URL are an error."""
    found: dict[str, WantedFile] = {}
    for one in files:
        other = found.setdefault(one.path, one)
        if other.sha256 != one.sha256:
            raise VerificationError(
                f"{shown_url(one.published)} has sha256 {other.sha256} in one lock, and {one.sha256} in another",
                hint="a published file does not change: find out which lock is wrong, and look that one up again",
            )
    reject_overlaps(found)
    return dict(sorted(found.items()))


def _is_there(wanted: WantedFile, store: FileStore) -> bool:
    found = store.find(wanted.path)
    # A storage that keeps no digest says nothing of the bytes: they are copied again.
    if found is None or (not found.sha256 and found.size == wanted.size):
        return False
    if (found.sha256, found.size) != (wanted.sha256, wanted.size):
        has = f"sha256 {found.sha256}" if found.sha256 else f"{found.size} bytes"
        raise VerificationError(
            f"the mirror has another file at {wanted.path}: it has {has}, but the lock says sha256 {wanted.sha256} and "
            f"{wanted.size} bytes",
            hint="find out which one is right; to replace the file, remove it from the mirror and run this again",
        )
    return True


def _check_credentials(files: Iterable[WantedFile], source: Source) -> None:
    """One error for all variables that are not set, before anything is downloaded."""
    cached = source.cache.names()
    places = [one.place for one in files if one.sha256 not in cached]
    for private in {id(place.origin.private): place.origin.private for place in places}.values():
        private.check(place.url for place in places if place.origin.private is private)


def _copy(wanted: WantedFile, store: FileStore, source: Source) -> None:
    with source.get(wanted.place, wanted.sha256, wanted.size) as file:
        store.put(wanted.path, file, wanted.sha256)


def _entries(
    files: Mapping[str, WantedFile], entries: Iterable[IndexedImage], images: Iterable[WantedImage], when: str
) -> Index:
    keys = {(one.name, one.locked.manifest): one.key for one in images}
    return Index(
        files={
            path: IndexedFile(url=one.published, sha256=one.sha256, size=one.size, when=when)
            for path, one in files.items()
        },
        images={keys[one.name, one.manifest]: one for one in entries},
    )


@contextlib.contextmanager
def open_mirror(address: str, run: Run, *, writes: bool) -> Iterator[FileStore]:
    """The mirror in a folder, or at an address of a cloud's storage."""
    storage = find_storage(address)
    if storage is None:
        with open_folder(Path(address), writes=writes) as store:
            yield store
        return
    with storage.open(address, run) as store:
        yield store


def find_storage(address: str) -> Storage | None:
    """The cloud's storage of an address; None for a folder. Any other address is an error."""
    scheme, separator, _ = address.partition("://")
    known = {storage.scheme: storage for storage in storages().values()}
    if separator and scheme not in known:
        forms = ", ".join(storage.form for storage in known.values())
        raise ConfigError(f"{address!a} is not the address of a mirror", hint=f"write a folder, or {forms}")
    return known[scheme] if separator else None


def fill_mirror(targets: Sequence[tuple[PreparedTarget, Lock]], address: str, *, dry_run: bool, run: Run) -> Filled:
    """Copy all artifacts and container images of these locks to the mirror at an address."""
    files: list[WantedFile] = []
    images: dict[str, WantedImage] = {}
    stop = threading.Event()
    for target, lock in targets:
        web = Web(environ=run.environ, console=run.console, hosts=target.hosts, stop=stop)
        origin = Origin(
            private=target.private_hosts(run),
            web=web,
            ask=web.ask,
            registry_credentials=functools.partial(target.registry_credentials, run),
        )
        requests = artifact_requests(target.steps)
        overrides = _overrides(target)
        files += [WantedFile.of(one, lock.artifacts[name], origin, overrides) for name, one in requests.items()]
        for name, image in target.images.items():
            wanted = WantedImage(image, lock.images[name], origin)
            images.setdefault(wanted.key, wanted)
    with run.cache.opened() as parts, open_mirror(address, run, writes=not dry_run) as store:
        source = Source(run.cache, parts, run.console, stop)
        return fill(files, [*images.values()], store, source, run.started, dry_run=dry_run)


def _overrides(target: PreparedTarget) -> dict[str, OwnUrl]:
    """The overrides by the keys of their requests. In a map, only the URL is another one for the mirror."""
    return {
        f"overrides.{name}": OwnUrl(f"overrides.{name}", value)
        if isinstance(value, str)
        else OwnUrl(f"overrides.{name}.url", value.url)
        for name, value in target.spec.config.overrides.items()
    }
