"""The index of a mirror, `index.json`: what is in it, where each file came from, and when it was copied.

Several runs may fill one mirror: each adds its entries to the newest index. An index is untrusted input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import pydantic

from imagegen.errors import PublishError, RefusedError
from imagegen.mirror.paths import INDEX
from imagegen.resources.model import ImageDigest, Sha256, Strict

if TYPE_CHECKING:
    from imagegen.providers.storage import FileStore

_LIMIT_BYTES: Final = 64 * 2**20
_MOST_ENTRIES: Final = 200_000
_TRIES: Final = 20

Path = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=4096)]
Text = Annotated[str, pydantic.StringConstraints(max_length=4096)]
Size = Annotated[int, pydantic.Field(ge=0, lt=2**43)]


class IndexedFile(Strict):
    """A file of the mirror, by its path."""

    url: Text
    """Its public URL, or that of the config."""
    sha256: Sha256
    size: Size
    when: Text
    """When it was copied: RFC 3339 in UTC."""


class IndexedTarball(Strict):
    """A tarball for `image_tarballs`."""

    path: Path
    sha256: Sha256
    size: Size


class IndexedImage(Strict):
    """A container image for one Windows."""

    name: Text
    """Its whole name."""
    digest: ImageDigest
    """What the name meant: of its index, or of its manifest if it has no index."""
    manifest: ImageDigest
    os_version: Text
    path: Path
    """The folder with its layout."""
    size: Size
    """Of its compressed layers, in bytes."""
    tarball: IndexedTarball | None
    """None for an image that is named by its digest."""
    when: Text


EntryT = TypeVar("EntryT", IndexedFile, IndexedImage)


class Index(Strict):
    """Everything in a mirror."""

    index_version: Literal[1] = 1
    files: Annotated[dict[Path, IndexedFile], pydantic.Field(max_length=_MOST_ENTRIES)] = {}
    images: Annotated[dict[Text, IndexedImage], pydantic.Field(max_length=_MOST_ENTRIES)] = {}
    """By name and digest of the manifest: a name may mean several images, for other versions of Windows."""


def image_key(name: str, manifest: str) -> str:
    return f"{name} {manifest}"


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
