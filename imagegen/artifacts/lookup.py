"""Locks artifacts: keeps what the old lock pins already, and downloads the rest.

Touches the network and a scratch folder in the cache, which it removes.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.artifacts.archive import read_members
from imagegen.artifacts.download import fetch
from imagegen.artifacts.form import check_form
from imagegen.artifacts.lock import Lock, LockedArtifact
from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import ImagegenError, VerificationError
from imagegen.lines import counted
from imagegen.scratch import scratch_folder
from imagegen.waiting import as_finished

if TYPE_CHECKING:
    from imagegen.console import Console

PARALLEL = 4


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
    downloads = _downloads(request for name, request in requests.items() if name not in kept)
    found = _download_all(downloads, environ=environ, cache=cache, console=console)
    for name, artifact in found.items():
        _reject_changed_bytes(requests[name], known.get(name), artifact)
    return {name: kept[name] if name in kept else found[name] for name in sorted(requests)}


def _reject_changed_bytes(request: ArtifactRequest, before: LockedArtifact | None, now: LockedArtifact) -> None:
    if before is None or before.url != now.url or before.sha256 == now.sha256 or request.sha256 == now.sha256:
        return
    raise VerificationError(
        f"{request.name}: the bytes of {shown_url(now.url)} have changed since it was locked: "
        f"sha256 {now.sha256}, but the lock says {before.sha256}",
        hint="a published file does not change: find out why; to accept the new bytes, write this sha256 "
        f"beside overrides.{request.override}",
    )


@dataclasses.dataclass(frozen=True)
class _Download:
    """One URL, and all the artifacts that come from it."""

    requests: tuple[ArtifactRequest, ...]

    def run(self, scratch: Path, environ: Mapping[str, str], console: Console, stop: threading.Event) -> _Found:
        first = self.requests[0]
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
        formats = {request.name: check_form(request, into) for request in self.requests}
        archive = next((found for found in formats.values() if found is not None), None)
        members = read_members(into, archive, first.name) if archive else None
        into.unlink()
        return {
            request.name: LockedArtifact(
                url=request.url,
                sha256=fetched.sha256,
                size=fetched.size,
                members=members if formats[request.name] else None,
            )
            for request in self.requests
        }


_Found = dict[str, LockedArtifact]


def _downloads(requests: Iterable[ArtifactRequest]) -> list[_Download]:
    together: dict[tuple[str, str | None], list[ArtifactRequest]] = {}
    for request in requests:
        together.setdefault((request.url, request.sha256), []).append(request)
    return [_Download(tuple(group)) for group in together.values()]


def _download_all(downloads: list[_Download], *, environ: Mapping[str, str], cache: Path, console: Console) -> _Found:
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
            running = [pool.submit(download.run, scratch, environ, console, stop) for download in downloads]
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
    errors: list[ImagegenError] = []
    found: _Found = {}
    for future in finished:
        try:
            found |= future.result()
        except ImagegenError as error:
            errors.append(error)
    if not errors:
        return found
    # Wrong bytes are the most serious error: an unreachable server must not hide their exit code.
    first = min(errors, key=lambda error: not isinstance(error, VerificationError))
    if len(errors) == 1:
        raise first
    details = [line for error in errors for line in (error.message, *error.details, f"  hint: {error.hint}")]
    raise type(first)(f"{len(errors)} of {len(finished)} downloads failed", details=details) from first
