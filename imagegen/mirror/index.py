"""The index of a mirror, `index.json`: what is in it, where each file came from, and when it was copied.

Several runs may fill one mirror: each adds its entries to the newest index. An index is untrusted input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import pydantic

from imagegen.base.errors import PublishError, RefusedError
from imagegen.oci.mirror_layout import INDEX, Index, IndexedFile, IndexedImage

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
