"""Completes, upgrades and checks the lock of a config: base images, artifacts and container images of its targets.

The second stage of the pipeline. It alone writes a lock.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.artifacts.cache import Cache, find_folder, size_limit
from imagegen.artifacts.credentials import with_credentials
from imagegen.artifacts.drift import Change, compare_locks
from imagegen.artifacts.image_mirror import ImageMirror, reject_other_images, tarball_name, tarball_requests
from imagegen.artifacts.lock import Lock, lock_bytes, read_lock
from imagegen.artifacts.lookup import KEEP, Refresh, Sources, find_unlocked_images, lock_artifacts, lock_images
from imagegen.artifacts.lookup import verify_signatures as verify_locked
from imagegen.artifacts.quarantine import check_quarantine
from imagegen.artifacts.registry import ask_over_https
from imagegen.artifacts.signature_request import SignaturePolicy, reject_wrong_signers, with_roots_of
from imagegen.build.tools import cache_folder
from imagegen.errors import ConfigError, errors_of
from imagegen.files import write_file
from imagegen.lines import counted
from imagegen.plan.context import artifact_requests
from imagegen.plan.resolve import find_missing
from imagegen.plan.signatures import find_unchecked, merge_requests, unsigned_downloads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.artifacts.image_lookup import ImageRequest, LockedImage
    from imagegen.artifacts.lock import LockedArtifact, LockedBase
    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.authenticode.model import Trust
    from imagegen.console import Console
    from imagegen.pipeline import PreparedTarget
    from imagegen.providers import RunFacts

# Nothing is written, so that everything may have changed.
_CHECK: Final = Refresh(None, accepts_public=True, accepts_own=True)


def open_cache(run: RunFacts, console: Console) -> Cache:
    """The cache of downloads of this user."""
    folder = find_folder(run.environ, cache_folder(run.environ) / "artifacts")
    return Cache(folder, size_limit(run.environ), console.warn)


def lock_command(config: Path, lock: Path) -> str:
    """The command that completes this lock."""
    given = "" if lock == default_lock(config) else f" --lock {shlex.quote(str(lock))}"
    return f"imagegen lock {shlex.quote(str(config))}{given}"


def default_lock(config: Path) -> Path:
    """The lock of a config, unless another one is given."""
    return config.with_name(f"{config.stem}.lock.json")


def read_lock_for(target: PreparedTarget, file: Path) -> Lock:
    """Read the lock. If it is missing or incomplete, the error names the command that writes it."""
    lock = read_lock(file, {target.name: target.cloud.base_form})
    missing = find_missing(target.spec, lock, target.steps, target.cloud)
    if lock is None or missing:
        what = f"there is no lock {file}" if lock is None else f"{file} has no entry for {', '.join(missing)}"
        raise ConfigError(what, hint=f"run `{lock_command(target.loaded.file, file)}`, which looks it up")
    reject_wrong_signers(target.signatures, lock.artifacts)
    return lock


def look_up(targets: Sequence[PreparedTarget], file: Path, *, run: RunFacts, console: Console) -> Lock:
    """Complete the lock: only missing entries are looked up."""
    old = _read(targets, file)
    lock = _look_up(targets, old, file, KEEP, run, console)
    _check_age(targets, lock, run)
    _write(lock, old, file, console)
    return lock


def upgrade(
    targets: Sequence[PreparedTarget], file: Path, names: Collection[str], *, run: RunFacts, console: Console
) -> list[Change]:
    """Look up these entries again, or all; return what changed. A public URL must still have the same bytes."""
    _check_names(targets, names)
    old = _read(targets, file)
    refresh = Refresh(frozenset(names) if names else None, accepts_own=True)
    lock = _look_up(targets, old, file, refresh, run, console)
    _check_age(targets, lock, run)
    _write(lock, old, file, console)
    return compare_locks(old, lock)


def find_drift(targets: Sequence[PreparedTarget], file: Path, *, run: RunFacts, console: Console) -> list[Change]:
    """Look up everything again, and return in what the lock differs. Writes nothing but the cache."""
    old = _read(targets, file)
    return compare_locks(old, _look_up(targets, old, file, _CHECK, run, console))


def verify_frozen(targets: Sequence[PreparedTarget], file: Path, *, run: RunFacts, console: Console) -> Lock:
    """The lock, which must be complete. What the cache has of it is hashed. Nothing is downloaded."""
    locks = [read_lock_for(target, file) for target in targets]
    lock = locks[0]
    _check_age(targets, lock, run)
    wanted = {**_requests(targets), **tarball_requests(_images(targets), lock.images)}
    digests = {lock.artifacts[name].sha256 for name in wanted}
    whole = open_cache(run, console).verify(digests)
    absent = f", {len(digests - whole)} not in the cache" if digests - whole else ""
    console.say(f"{file} is complete: {counted(len(whole), 'file')} verified in the cache{absent}")
    return lock


def _read(targets: Sequence[PreparedTarget], file: Path) -> Lock | None:
    return read_lock(file, {target.name: target.cloud.base_form for target in targets})


def _write(lock: Lock, old: Lock | None, file: Path, console: Console) -> None:
    if lock == old:
        return
    write_file(file, lock_bytes(lock))
    pulled = f", {counted(len(lock.images), 'container image')}" if lock.images else ""
    what = f"{counted(len(lock.artifacts), 'artifact')}{pulled} and {counted(len(lock.base_images), 'base image')}"
    console.say(f"locked {what} in {file}")


def _requests(targets: Sequence[PreparedTarget]) -> Mapping[str, ArtifactRequest]:
    return {name: request for target in targets for name, request in artifact_requests(target.steps).items()}


def _images(targets: Sequence[PreparedTarget]) -> dict[str, ImageRequest]:
    return {name: request for target in targets for name, request in target.images.items()}


def _check_age(targets: Sequence[PreparedTarget], lock: Lock, run: RunFacts) -> None:
    check_quarantine(_requests(targets), lock.artifacts, targets[0].quarantine_days, run.started)


def _check_names(targets: Sequence[PreparedTarget], names: Collection[str]) -> None:
    known = {name for target in targets for name in (target.name, *target.images)} | _requests(targets).keys()
    if unknown := sorted(set(names) - known):
        raise ConfigError(f"the lock has no entry {unknown[0]}", hint=f"known: {', '.join(sorted(known))}")


def _look_up(
    targets: Sequence[PreparedTarget], old: Lock | None, file: Path, refresh: Refresh, run: RunFacts, console: Console
) -> Lock:
    images_asked = _images(targets)
    pulled = {name: request for name, request in images_asked.items() if not request.mirror}
    mirrored = {name: request for name, request in images_asked.items() if request.mirror}
    # Before anything is downloaded, and only if a registry is asked: a complete lock needs no credentials.
    asking = targets if find_unlocked_images(pulled, old, refresh) else ()
    credentials = {registry: one for target in asking for registry, one in target.registry_credentials(run).items()}
    bases = _look_up_bases(targets, old, refresh, run, console)
    requests, sources = _requests(targets), _sources(targets, file, run, console)
    _warn_of_unsigned(targets, old, console)
    artifacts = lock_artifacts(requests, old, sources, refresh)
    mirror = ImageMirror(targets[0].mirror_url or "", with_credentials(sources.ask, sources.private))
    images = {
        **lock_images(pulled, old, sources.ask, refresh=refresh, console=console, credentials=credentials),
        **lock_images(mirrored, old, sources.ask, refresh=refresh, console=console, mirror=mirror),
    }
    artifacts |= _lock_tarballs(mirrored, images, mirror, old, sources, refresh)
    return Lock(labels=dict(run.labels), artifacts=artifacts, base_images=bases, images=images)


def _lock_tarballs(
    requests: Mapping[str, ImageRequest],
    images: Mapping[str, LockedImage],
    mirror: ImageMirror,
    old: Lock | None,
    sources: Sources,
    refresh: Refresh,
) -> dict[str, LockedArtifact]:
    """The tarballs of the mirror that have the images of the lock: exactly those, whoever looked them up."""
    tarballs = tarball_requests(requests, images)
    for name, request in requests.items():
        tarball = tarballs[tarball_name(request.name)]
        known = old.artifacts.get(tarball.name) if old else None
        if known is None or not known.answers(tarball):
            # Before gigabytes are downloaded.
            mirror.check(name, images[name])
    # A container image has no quarantine and no Authenticode signature.
    sources = dataclasses.replace(sources, needs_time=False, signatures=None)
    found = lock_artifacts(tarballs, old, sources, refresh)
    reject_other_images(requests.values(), images, found)
    return found


def _sources(targets: Sequence[PreparedTarget], file: Path, run: RunFacts, console: Console) -> Sources:
    hosts = targets[0].hosts
    return Sources(
        environ=run.environ,
        cache=open_cache(run, console),
        ask=ask_over_https(run.environ, console, hosts=hosts),
        console=console,
        hosts=hosts,
        private=targets[0].private_hosts(run),
        needs_time=targets[0].quarantine_days > 0,
        lock=str(file.absolute()),
        upgrade=f"{lock_command(targets[0].loaded.file, file)} --upgrade",
        signatures=_signature_policy(targets, run, console),
    )


def _signature_policy(targets: Sequence[PreparedTarget], run: RunFacts, console: Console) -> SignaturePolicy | None:
    """What must be signed, and the trust of this moment. None: nothing must be signed."""
    requests = merge_requests(target.signatures for target in targets)
    if not requests:
        return None
    sources = with_roots_of(run.environ, targets[0].trust_sources, console.warn)
    now = datetime.datetime.fromisoformat(run.started)

    def load() -> Trust:
        # What reads certificates takes long to import, and few configs need it.
        from imagegen.artifacts.signature_trust import download_crl, make_trust

        download = functools.partial(download_crl, environ=run.environ, hosts=targets[0].hosts, console=console)
        return make_trust(sources, now, download)

    return SignaturePolicy(requests, sources.root_thumbprints, load)


def _warn_of_unsigned(targets: Sequence[PreparedTarget], old: Lock | None, console: Console) -> None:
    """Before a download that cannot be accepted: nobody signs these artifacts where they are published."""
    requests = merge_requests(target.signatures for target in targets)
    unknown = [requests[name] for name in sorted(find_unchecked(requests, old.artifacts if old else {}))]
    for problem in unsigned_downloads(unknown, targets[0].loaded.document):
        console.warn(f"{problem.message}: {problem.hint}")


def verify_signatures(target: PreparedTarget, lock: Lock, file: Path, *, run: RunFacts, console: Console) -> None:
    """Verify what must be signed in the bytes that the lock pins: a lock is not trusted, and time goes on."""
    if not target.signatures:
        return
    wanted = {name: request for name, request in _requests([target]).items() if name in target.signatures}
    verify_locked(wanted, lock.artifacts, _sources([target], file, run, console))
    console.say(f"the signatures of {counted(len(wanted), 'artifact')} are as the config requires")


def _look_up_bases(
    targets: Sequence[PreparedTarget], old: Lock | None, refresh: Refresh, run: RunFacts, console: Console
) -> dict[str, LockedBase]:
    bases = dict(old.base_images) if old else {}
    for target in targets:
        name, settings = target.name, target.spec.settings
        request = target.cloud.base_request(settings, target.spec.offered_image)
        if refresh.includes(name) or name not in bases or bases[name].request != request:
            with console.task(f"looking up the base image for {name}", None), errors_of(target.spec):
                bases[name] = target.cloud.look_up_base(settings, request, run)
    return bases
