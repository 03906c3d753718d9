"""Finds a manifest in a store, or as a file that somebody has copied from one."""

import re
import shlex
from pathlib import Path
from typing import Final

from imagegen.base.errors import ConfigError
from imagegen.base.lines import counted
from imagegen.record.manifest import ImageManifest
from imagegen.record.store import Listing, LocalStore

_ID: Final = re.compile(r"[0-9A-Fa-f]{1,64}")


def find_store(folder: Path | None, out: Path) -> Path:
    """The folder `manifests` in FOLDER or in OUT. FOLDER must exist, and may also be the folder `manifests` itself."""
    if folder and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name a folder that holds `manifests`, as --out does")
    return folder if folder and folder.name == "manifests" else (folder or out) / "manifests"


def choose_manifest(image_id: str, listing: Listing, store: Path) -> ImageManifest:
    """The one manifest whose image id begins so."""
    found = [item for item in listing.records if item.image_id.startswith(image_id.lower())]
    if not found:
        listing.reject_bad()
    if len(found) != 1:
        what = "no manifest" if not found else counted(len(found), "manifest")
        hint = f"run `imagegen manifest list {shlex.quote(str(store.parent))}` to see them"
        if not listing.records:
            hint = f"give the --out folder of the build as FOLDER, after {image_id}"
        raise ConfigError(f"{store} has {what} whose image id begins with {image_id!r}", hint=hint)
    return found[0]


def is_image_id(name: str) -> bool:
    """Whether a name can be the start of an image's id."""
    return _ID.fullmatch(name) is not None


def find_manifest_file(name: str, folder: Path | None) -> Path:
    """The file of a manifest: a path, or the start of an image's id in a store."""
    if is_image_id(name) and not Path(name).exists():
        root = find_store(folder, Path("out"))
        store = LocalStore(root)
        found = choose_manifest(name, store.list(), root)
        return store.path(found.name, found.target, found.image_id, found.labels)
    if not Path(name).exists():
        hint = "give the file of a manifest, or the start of its image's id, which `imagegen manifest list` shows"
        raise ConfigError(f"{name} does not exist", hint=hint)
    if folder is not None:
        raise ConfigError(f"{name} is a file, so FOLDER has no effect", hint=f"leave {folder} out")
    return Path(name)
