"""Looks up what a lock does not have yet: artifacts and container images. `imagegen lock` and the first build call it.

Downloads to a scratch folder in the cache, which is removed. Every digest is computed from the bytes that arrived.
"""

from __future__ import annotations

import concurrent.futures
import functools
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from imagegen.artifacts.archive import check_form, read_members
from imagegen.artifacts.download import fetch
from imagegen.artifacts.image_lookup import Ask, ImageRequest, LockedImage, look_up_image
from imagegen.artifacts.image_tarball import read_image_tarball
from imagegen.artifacts.lock import Lock, LockedArtifact
from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import ImagegenError, VerificationError
from imagegen.files import scratch_folder
from imagegen.lines import counted
from imagegen.signals import as_finished

if TYPE_CHECKING:
    from imagegen.artifacts.credentials import PrivateHosts
    from imagegen.console import Console

PARALLEL = 4

_Found = dict[str, LockedArtifact]


def find_unlocked_images(requests: Mapping[str, ImageRequest], old: Lock | None, *, refresh: bool) -> set[str]:
    """The container images that must be looked up: those that the old lock does not have. With `refresh`, all."""
    known = old.images if old else {}
    return {
        name for name, request in requests.items() if refresh or name not in known or not known[name].answers(request)
    }


def lock_images(
    requests: Mapping[str, ImageRequest],
    old: Lock | None,
    ask: Ask,
    *,
    refresh: bool,
    console: Console,
    credentials: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, LockedImage]:
    """The container images for a lock. With `refresh`, each of them is looked up again.

    `credentials` are those of registries, by their names."""
    unlocked = find_unlocked_images(requests, old, refresh=refresh)
    kept = requests.keys() - unlocked
    found = {name: image for name, image in (old.images if old else {}).items() if name in kept}
    for name in sorted(unlocked):
        with console.task(f"looking up {name}", None):
            found[name] = look_up_image(requests[name], ask, credentials.get(requests[name].name.registry, ""))
    return dict(sorted(found.items()))


def lock_artifacts(
    requests: Mapping[str, ArtifactRequest],
    old: Lock | None,
    *,
    refresh: bool,
    environ: Mapping[str, str],
    cache: Path,
    console: Console,
    private: PrivateHosts | None = None,
) -> dict[str, LockedArtifact]:
    """The artifacts for a lock. With `refresh`, each of them is downloaded again. Of `private` hosts with their
    credentials."""
    known = old.artifacts if old else {}
    kept = {
        name: known[name]
        for name, request in requests.items()
        if name in known and not refresh and known[name].answers(request)
    }
    # By URL and digest: one download may serve several artifacts.
    together: dict[tuple[str, str | None], list[ArtifactRequest]] = {}
    for name, request in requests.items():
        if name not in kept:
            together.setdefault((request.url, request.sha256), []).append(request)
    found = _download_all([*together.values()], environ=environ, cache=cache, console=console, private=private)
    for name, now in found.items():
        _reject_changed_bytes(requests[name], known.get(name), now)
    return {name: kept[name] if name in kept else found[name] for name in sorted(requests)}


def _reject_changed_bytes(request: ArtifactRequest, before: LockedArtifact | None, now: LockedArtifact) -> None:
    if before and before.url == now.url and now.sha256 not in (before.sha256, request.sha256):
        raise VerificationError(
            f"{request.name}: the bytes of {shown_url(now.url)} have changed since it was locked: "
            f"sha256 {now.sha256}, but the lock says {before.sha256}",
            hint="a published file does not change: find out why; to accept the new bytes, write this sha256 "
            f"beside {request.key}",
        )


def _download(
    requests: list[ArtifactRequest],
    scratch: Path,
    environ: Mapping[str, str],
    console: Console,
    private: PrivateHosts | None,
    stop: threading.Event,
) -> _Found:
    """Download the URL of these requests, which they share."""
    first = requests[0]
    # In a folder of its own, because an artifact's name may not be a valid file name.
    into = Path(tempfile.mkdtemp(dir=scratch)) / "artifact"
    fetched = fetch(
        first.url,
        into,
        environ=environ,
        console=console,
        expected_sha256=first.sha256,
        key=first.key,
        address=functools.partial(private.address, first.url) if private and private.is_private(first.url) else None,
        stop=stop,
    )
    formats = {request.name: check_form(request, into) for request in requests}
    archive = next((form for form in formats.values() if form), None)
    asked = {request.form for request in requests if formats[request.name]}
    members = read_members(into, archive, first.name) if archive and "archive" in asked else None
    images = read_image_tarball(into, archive, first.name) if archive and "image" in asked else None
    into.unlink()
    return {
        request.name: LockedArtifact(
            url=request.url,
            sha256=fetched.sha256,
            size=fetched.size,
            members=members if request.form == "archive" else None,
            images=images if request.form == "image" else None,
        )
        for request in requests
    }


def _download_all(
    downloads: list[list[ArtifactRequest]],
    *,
    environ: Mapping[str, str],
    cache: Path,
    console: Console,
    private: PrivateHosts | None,
) -> _Found:
    if not downloads:
        return {}
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    stop = threading.Event()
    with (
        scratch_folder(cache, "lock-") as scratch,
        concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool,
        console.task(f"looking up {counted(len(downloads), 'artifact')}", len(downloads)) as advance,
    ):
        try:
            running = [
                pool.submit(_download, requests, scratch, environ, console, private, stop) for requests in downloads
            ]
            for _ in as_finished(running):
                advance(1)
        except BaseException:
            # Without this, an interrupt would wait for every download.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return _gather(running)


def _gather(finished: list[concurrent.futures.Future[_Found]]) -> _Found:
    """All artifacts, or all errors, so that one run shows the operator every URL to correct."""
    errors = [error for error in (future.exception() for future in finished) if isinstance(error, ImagegenError)]
    if not errors:
        return {name: artifact for future in finished for name, artifact in future.result().items()}
    # Wrong bytes are the most serious error: an unreachable server must not hide their exit code.
    first = min(errors, key=lambda error: not isinstance(error, VerificationError))
    if len(errors) == 1:
        raise first
    details = [line for error in errors for line in (error.message, *error.details, f"  hint: {error.hint}")]
    raise type(first)(f"{len(errors)} of {len(finished)} downloads failed", details=details) from first
