"""Compares a manifest with the lock that its image was built with. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from imagegen.base.errors import Problem
from imagegen.fetch.lock import Lock
from imagegen.fetch.request import shown_url
from imagegen.record.differences import differences
from imagegen.record.manifest_file import ManifestFile

_HINT: Final = "give the lock as it was when the image was built, for example from that commit of its repository"


def compare_lock(lock: Lock, sha256: str, file: ManifestFile, shown_as: str) -> Iterator[Problem]:
    """Each input of the image that the lock does not have, or has with another digest. It may have further inputs."""
    inputs, target = file.manifest.inputs, file.manifest.target
    locked = {name: lock.artifacts[name] for name in inputs.artifacts if name in lock.artifacts}
    base = lock.base_images.get(target)
    found = {
        "artifacts": {name: {"url": shown_url(one.url), "sha256": one.sha256} for name, one in locked.items()},
        "base_images": {target: base.model_dump(include={"identity", "place"})} if base else {},
    }
    expected = {
        "artifacts": {name: {"url": one.url, "sha256": one.sha256} for name, one in inputs.artifacts.items()},
        "base_images": {target: inputs.base.model_dump(include={"identity", "place"})},
    }
    yield from differences(found, expected, place=shown_as, source="the manifest", hint=_HINT)
    for name, digest in inputs.images.items():
        known = _digests_of(name, lock)
        if digest not in known:
            is_ = f"is {' or '.join(sorted(known))}" if known else "is missing"
            yield Problem(shown_as, 0, f"images.{name}", f"{is_}, but the manifest says {digest}", _HINT)
    if inputs.lock_sha256 not in (None, sha256):
        message = f"has sha256 {sha256}, but the image was built with a lock of sha256 {inputs.lock_sha256}"
        yield Problem(shown_as, 0, "", message, _HINT)


def _digests_of(name: str, lock: Lock) -> set[str]:
    """Every digest by which a manifest may name a container image: it depends on how the image came."""
    digests: set[str] = set()
    if image := lock.images.get(name):
        digests |= {image.digest, image.manifest, image.config}
    for artifact in lock.artifacts.values():
        if saved := (artifact.images or {}).get(name):
            digests |= {*([saved.digest] if saved.digest else []), *(one.config for one in saved.variants)}
    return digests
