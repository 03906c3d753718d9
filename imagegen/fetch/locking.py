"""Completes, upgrades and checks the lock of a config: base images, artifacts and container images of its targets.

The second stage of the pipeline. It alone writes a lock.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.files import swap_file
from imagegen.base.lines import counted
from imagegen.fetch.credentials import with_credentials
from imagegen.fetch.drift import (
    Change,
    changed_digests,
    check_quarantine,
    compare_locks,
    moved_redirects,
    rollbacks,
    verify_contents,
)
from imagegen.fetch.http import Web
from imagegen.fetch.lock import Lock, StoredLock, lock_bytes, read_stored_lock
from imagegen.fetch.lookup import (
    KEEP,
    Refresh,
    Sources,
    find_ca_hosts,
    find_unlocked_images,
    lock_artifacts,
    lock_images,
    verify_signatures,
)
from imagegen.oci.registry import ImageMirror, look_up_image, reject_other_images, tarball_name, tarball_requests
from imagegen.plan.context import artifact_requests
from imagegen.plan.resolve import find_missing
from imagegen.settle.spec import errors_of
from imagegen.trust.judge import SignaturePolicy, check_own_files
from imagegen.trust.policy import find_unchecked, find_unsigned, merge_requests, unsigned_downloads
from imagegen.trust.record import reject_wrong_signers
from imagegen.trust.sources import download_crl, make_trust, with_roots_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.authenticode.model import Trust
    from imagegen.base.console import Console
    from imagegen.fetch.lock import LockedArtifact, LockedBase
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.oci.names import ImageRequest, LockedImage
    from imagegen.plan.target import PreparedTarget
    from imagegen.run import Run
    from imagegen.trust.sources import TrustSources

_ATTEMPTS: Final = 5
# Nothing is written, so that everything may have changed.
_CHECK: Final = Refresh(None, accepts_public=True, accepts_own=True)


def lock_command(config: Path, lock: Path) -> str:
    """The command that completes this lock."""
    given = "" if lock == default_lock(config) else f" --lock {shlex.quote(str(lock))}"
    return f"imagegen lock {shlex.quote(str(config))}{given}"


def default_lock(config: Path) -> Path:
    """The lock of a config, unless another one is given."""
    return config.with_name(f"{config.stem}.lock.json")


def read_lock_for(target: PreparedTarget, file: Path) -> Lock:
    """Read the lock. If it is missing or incomplete, the error names the command that writes it."""
    return read_stored_lock_for(target, file).lock


def read_stored_lock_for(target: PreparedTarget, file: Path) -> StoredLock:
    """The same, with the digest of its bytes."""
    stored = _read([target], file)
    check_complete(target, stored.lock if stored else None, file)
    if stored is None:
        raise AssertionError("a lock that does not exist is not complete")
    return stored


def check_complete(target: PreparedTarget, lock: Lock | None, file: Path) -> None:
    """Reject a lock that has not everything for this target."""
    missing = find_missing(target.spec, lock, target.steps, target.cloud)
    if lock is None or missing:
        what = f"there is no lock {file}" if lock is None else f"{file} has no entry for {', '.join(missing)}"
        raise ConfigError(what, hint=f"run `{lock_command(target.loaded.file, file)}`, which looks it up")
    reject_wrong_signers(target.signatures, lock.artifacts)


def look_up(targets: Sequence[PreparedTarget], file: Path, run: Run) -> StoredLock:
    """Complete the lock: only missing entries are looked up."""
    return _update(targets, file, KEEP, run)[1]


def tell_unsigned(targets: Sequence[PreparedTarget], console: Console) -> None:
    """Say which artifacts no policy for signatures could accept as they are. One with such a policy has been warned."""
    unsigned = find_unsigned(request for name, request in _requests(targets).items() if name not in _signed(targets))
    if unsigned:
        console.say(
            f"published without a signature: {', '.join(unsigned)}. artifacts.signatures would refuse "
            f"{'it' if len(unsigned) == 1 else 'them'}, unless overrides lead to signed copies"
        )


def _signed(targets: Sequence[PreparedTarget]) -> set[str]:
    """The artifacts that must be signed."""
    return {name for target in targets for name in target.signatures}


def upgrade(targets: Sequence[PreparedTarget], file: Path, names: Collection[str], run: Run) -> list[Change]:
    """Look up these entries again, or all; return what changed. A public URL must still have the same bytes."""
    _check_names(targets, names)
    refresh = Refresh(frozenset(names) if names else None, accepts_own=True)
    old, now = _update(targets, file, refresh, run)
    return compare_locks(old, now.lock)


def _update(
    targets: Sequence[PreparedTarget],
    file: Path,
    refresh: Refresh,
    run: Run,
) -> tuple[Lock | None, StoredLock]:
    """The old and the new lock. If another run wrote the lock meanwhile, this begins again with what it wrote."""
    for _ in range(_ATTEMPTS):
        stored = _read(targets, file)
        old = stored.lock if stored else None
        lock = _look_up(targets, old, file, refresh, run)
        _check_age(targets, lock, run)
        if stored and lock == old:
            return old, stored
        content = lock_bytes(lock)
        if swap_file(file, content, stored.sha256 if stored else None):
            _say_changes(targets, old, lock, refresh, run.console)
            _say_locked(lock, file, run.console)
            return old, StoredLock(file, lock, hashlib.sha256(content).hexdigest())
        run.console.say(
            f"another run changed {file} meanwhile: its entries are kept, and the others are looked up again"
        )
    raise RefusedError(f"{file} was changed by other runs {_ATTEMPTS} times", hint="run it again when they have ended")


def find_drift(targets: Sequence[PreparedTarget], file: Path, run: Run) -> list[Change]:
    """Look up everything again, and return in what the lock differs. Writes nothing but the cache."""
    stored = _read(targets, file)
    old = stored.lock if stored else None
    now = _look_up(targets, old, file, _CHECK, run)
    for line in moved_redirects(old, now):
        run.console.say(f"note: {line}")
    return compare_locks(old, now)


def verify_frozen(targets: Sequence[PreparedTarget], file: Path, run: Run) -> StoredLock:
    """The lock, which must be complete. What the cache has of it is hashed. Nothing is downloaded."""
    stored = read_stored_lock_for(targets[0], file)
    lock = stored.lock
    for target in targets[1:]:
        check_complete(target, lock, file)
    _check_age(targets, lock, run)
    wanted = {**_requests(targets), **tarball_requests(_images(targets), lock.images)}
    digests = {lock.artifacts[name].sha256 for name in wanted}
    whole = run.cache.verify(digests)
    absent = f", {len(digests - whole)} not in the cache" if digests - whole else ""
    run.console.say(f"{file} is complete: {counted(len(whole), 'file')} verified in the cache{absent}")
    return stored


def _read(targets: Sequence[PreparedTarget], file: Path) -> StoredLock | None:
    return read_stored_lock(file, {target.name: target.cloud.base_form for target in targets})


def _say_changes(
    targets: Sequence[PreparedTarget], old: Lock | None, lock: Lock, refresh: Refresh, console: Console
) -> None:
    """Report digests that changed. `--upgrade` lists all its changes itself."""
    if refresh == KEEP:
        for line in changed_digests(old, lock, _requests(targets)):
            console.say(line)
    for line in rollbacks(old, lock):
        console.warn(line)


def _say_locked(lock: Lock, file: Path, console: Console) -> None:
    pulled = f", {counted(len(lock.images), 'container image')}" if lock.images else ""
    what = f"{counted(len(lock.artifacts), 'artifact')}{pulled} and {counted(len(lock.base_images), 'base image')}"
    console.say(f"locked {what} in {file}")


def _requests(targets: Sequence[PreparedTarget]) -> Mapping[str, ArtifactRequest]:
    return {name: request for target in targets for name, request in artifact_requests(target.steps).items()}


def _images(targets: Sequence[PreparedTarget]) -> dict[str, ImageRequest]:
    return {name: request for target in targets for name, request in target.images.items()}


def _check_age(targets: Sequence[PreparedTarget], lock: Lock, run: Run) -> None:
    check_quarantine(_requests(targets), lock.artifacts, targets[0].quarantine_days, run.started)


def _check_names(targets: Sequence[PreparedTarget], names: Collection[str]) -> None:
    known = {name for target in targets for name in (target.name, *target.images)} | _requests(targets).keys()
    if unknown := sorted(set(names) - known):
        raise ConfigError(f"the lock has no entry {unknown[0]}", hint=f"known: {', '.join(sorted(known))}")


def _look_up(
    targets: Sequence[PreparedTarget],
    old: Lock | None,
    file: Path,
    refresh: Refresh,
    run: Run,
) -> Lock:
    images_asked = _images(targets)
    pulled = {name: request for name, request in images_asked.items() if not request.mirror}
    mirrored = {name: request for name, request in images_asked.items() if request.mirror}
    _check_own_files(targets, run)
    # Before anything is downloaded, and only if a registry is asked: a complete lock needs no credentials.
    asking = targets if find_unlocked_images(pulled, old, refresh) else ()
    credentials = {registry: one for target in asking for registry, one in target.registry_credentials(run).items()}
    bases = _look_up_bases(targets, old, refresh, run)
    requests, sources = _requests(targets), _sources(targets, file, run)
    _warn_of_unsigned(targets, old, run.console)
    artifacts = lock_artifacts(requests, old, sources, refresh)
    mirror = ImageMirror(targets[0].mirror_url or "", with_credentials(sources.ask, sources.private))

    def ask_registry(request: ImageRequest) -> LockedImage:
        return look_up_image(request, sources.ask, credentials.get(request.name.registry, ""))

    images = {
        **lock_images(pulled, old, ask_registry, refresh=refresh, console=run.console),
        **lock_images(mirrored, old, mirror.look_up, refresh=refresh, console=run.console),
    }
    artifacts |= _lock_tarballs(mirrored, images, mirror, old, sources, refresh)
    ca_hosts = {}
    if sources.web.hosts.authorities:
        known = old.ca_hosts if old and refresh.names is not None else {}
        ca_hosts = find_ca_hosts({name: one.url for name, one in artifacts.items()}, known, sources)
    if old and len(targets) < len(targets[0].loaded.specs):
        # The others' entries: what is looked up for one target takes nothing from another.
        artifacts, images = {**old.artifacts, **artifacts}, {**old.images, **images}
        ca_hosts = {**old.ca_hosts, **ca_hosts}
    return Lock(labels=dict(run.labels), artifacts=artifacts, base_images=bases, images=images, ca_hosts=ca_hosts)


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


def _sources(targets: Sequence[PreparedTarget], file: Path, run: Run) -> Sources:
    web = Web(environ=run.environ, console=run.console, hosts=targets[0].hosts)
    return Sources(
        web=web,
        console=run.console,
        cache=run.cache,
        ask=web.ask,
        private=targets[0].private_hosts(run),
        needs_time=targets[0].quarantine_days > 0,
        lock=str(file.absolute()),
        upgrade=f"{lock_command(targets[0].loaded.file, file)} --upgrade",
        signatures=_signature_policy(targets, run),
    )


def _signature_policy(targets: Sequence[PreparedTarget], run: Run) -> SignaturePolicy | None:
    """What must be signed, and the trust of this moment. None: nothing must be signed."""
    requests = merge_requests(target.signatures for target in targets)
    if not requests:
        return None
    sources = with_roots_of(run.environ, targets[0].trust_sources, run.console.warn)
    load = functools.partial(_load_trust, sources, targets[0], run)
    return SignaturePolicy(requests, sources.root_thumbprints, load, run.crls)


def _load_trust(sources: TrustSources, target: PreparedTarget, run: Run) -> Trust:
    download = functools.partial(download_crl, environ=run.environ, hosts=target.hosts, console=run.console)
    return make_trust(sources, datetime.datetime.fromisoformat(run.started), download, run.crls)


def _check_own_files(targets: Sequence[PreparedTarget], run: Run) -> None:
    """Verify the operator's own files that must be signed. No stand-in takes their place in a rehearsal, so the roots
    are always those of the config."""
    found = [one for target in targets for one in target.own_files]
    load = functools.partial(_load_trust, targets[0].trust_sources, targets[0], run)
    check_own_files(found, load, run.crls)


def _warn_of_unsigned(targets: Sequence[PreparedTarget], old: Lock | None, console: Console) -> None:
    """Before a download that cannot be accepted: nobody signs these artifacts where they are published."""
    requests = merge_requests(target.signatures for target in targets)
    unknown = [requests[name] for name in sorted(find_unchecked(requests, old.artifacts if old else {}))]
    for problem in unsigned_downloads(unknown, targets[0].loaded.document):
        console.warn(f"{problem.message}: {problem.hint}")


def verify_lock(target: PreparedTarget, stored: StoredLock, run: Run) -> None:
    """Verify what the lock says of its bytes: a lock is not trusted, and time goes on. What must be signed
    is verified in the cache or in a new download, and sizes and members in the files that the cache has then."""
    lock = stored.lock
    _check_own_files([target], run)
    requests, sources = _requests([target]), _sources([target], stored.file, run)
    wanted = {name: request for name, request in requests.items() if name in target.signatures}
    if wanted:
        verify_signatures(wanted, lock.artifacts, sources)
        run.console.say(f"the signatures of {counted(len(wanted), 'artifact')} are as the config requires")
    # Afterwards, because the cache has what was just downloaded.
    verify_contents(requests, lock.artifacts, sources)


def _look_up_bases(
    targets: Sequence[PreparedTarget], old: Lock | None, refresh: Refresh, run: Run
) -> dict[str, LockedBase]:
    bases = dict(old.base_images) if old else {}
    for target in targets:
        name, settings = target.name, target.spec.settings
        request = target.cloud.base_request(settings, target.spec.offered_image)
        if refresh.includes(name) or name not in bases or bases[name].request != request:
            with run.console.task(f"looking up the base image for {name}", None), errors_of(target.spec):
                bases[name] = target.cloud.look_up_base(settings, request, run)
    return bases
