"""Locks artifacts: keeps what the old lock pins already, and downloads the rest.

Touches the network and a scratch folder in the cache, which it removes.
"""

from __future__ import annotations

import concurrent.futures
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.artifacts.archive import check_form, read_members
from imagegen.artifacts.download import fetch
from imagegen.artifacts.lock import Lock, LockedArtifact
from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import ImagegenError, VerificationError
from imagegen.files import scratch_folder
from imagegen.lines import counted
from imagegen.waiting import as_finished

if TYPE_CHECKING:
    from imagegen.console import Console

PARALLEL = 4

_Found = dict[str, LockedArtifact]


def lock_artifacts(
    requests: Mapping[str, ArtifactRequest],
    old: Lock | None,
    *,
    refresh: bool,
    environ: Mapping[str, str],
    cache: Path,
    console: Console,
) -> dict[str, LockedArtifact]:
    """The artifacts for a lock. With `refresh`, each of them is downloaded again."""
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
    found = _download_all([*together.values()], environ=environ, cache=cache, console=console)
    for name, now in found.items():
        _reject_changed_bytes(requests[name], known.get(name), now)
    return {name: kept[name] if name in kept else found[name] for name in sorted(requests)}


def _reject_changed_bytes(request: ArtifactRequest, before: LockedArtifact | None, now: LockedArtifact) -> None:
    if before and before.url == now.url and now.sha256 not in (before.sha256, request.sha256):
        raise VerificationError(
            f"{request.name}: the bytes of {shown_url(now.url)} have changed since it was locked: "
            f"sha256 {now.sha256}, but the lock says {before.sha256}",
            hint="a published file does not change: find out why; to accept the new bytes, write this sha256 "
            f"beside overrides.{request.override}",
        )


def _download(
    requests: list[ArtifactRequest], scratch: Path, environ: Mapping[str, str], console: Console, stop: threading.Event
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
        override=first.override,
        stop=stop,
    )
    formats = {request.name: check_form(request, into) for request in requests}
    archive = next((form for form in formats.values() if form), None)
    members = read_members(into, archive, first.name) if archive else None
    into.unlink()
    return {
        request.name: LockedArtifact(
            url=request.url,
            sha256=fetched.sha256,
            size=fetched.size,
            members=members if formats[request.name] else None,
        )
        for request in requests
    }


def _download_all(
    downloads: list[list[ArtifactRequest]], *, environ: Mapping[str, str], cache: Path, console: Console
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
            running = [pool.submit(_download, requests, scratch, environ, console, stop) for requests in downloads]
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
    failures = [future.exception() for future in finished]
    errors = [error for error in failures if isinstance(error, ImagegenError)]
    if not errors:
        return {name: artifact for future in finished for name, artifact in future.result().items()}
    # Wrong bytes are the most serious error: an unreachable server must not hide their exit code.
    first = min(errors, key=lambda error: not isinstance(error, VerificationError))
    if len(errors) == 1:
        raise first
    details = [line for error in errors for line in (error.message, *error.details, f"  hint: {error.hint}")]
    raise type(first)(f"{len(errors)} of {len(finished)} downloads failed", details=details) from first
