"""Compares a lock with another lock, with the age that the config requires, and with the bytes in the cache.

The plan and the machine take sizes and digests from the lock, and a lock is not trusted. What the cache does not have
is not downloaded for this: the machine compares it too, but hours later, and it costs.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import RefusedError, VerificationError
from imagegen.base.lines import counted
from imagegen.base.parallel import results_of, run_all
from imagegen.fetch.lock import TIME_FORM
from imagegen.fetch.request import host_of, shown_url
from imagegen.inspect.archive import open_artifacts
from imagegen.trust.record import place

if TYPE_CHECKING:
    from imagegen.fetch.lock import Lock, LockedArtifact
    from imagegen.fetch.lookup import Sources
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.inspect.archive import OpenedArtifact

_NONE = "not locked"
# What is only known about the same bytes.
_NO_CONTENT = {
    *("release", "confirmed", "published", "redirected_to", "signed", "not_programs", "sizes", "dotted"),
}
_FOLLOWS = {"size", "members", "images", "layers", "config", "manifest"}

_Facts = Mapping[str, object]


@dataclasses.dataclass(frozen=True)
class Change:
    """An entry of a lock that is another one now."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


def compare_locks(old: Lock | None, new: Lock) -> list[Change]:
    """The entries of the new lock that the old one does not have, or has with other contents."""
    before = _entries(old) if old else {}
    return [*_changes(before, _entries(new))]


def moved_redirects(old: Lock | None, new: Lock) -> Iterator[str]:
    """A line for each artifact whose URL redirects to another host than it did. Its bytes are compared in any case."""
    for name, now in new.artifacts.items():
        before = old.artifacts.get(name) if old else None
        if before is None or before.url != now.url or not before.redirected_to or not now.redirected_to:
            continue
        was, is_now = host_of(before.redirected_to), host_of(now.redirected_to)
        if was != is_now:
            yield f"{name}: {shown_url(now.url)} redirects to {is_now} now, no longer to {was}"


def reject_other_bytes(
    requests: Sequence[ArtifactRequest],
    known: Mapping[str, LockedArtifact],
    now: Mapping[str, LockedArtifact],
    upgrade: str,
) -> None:
    """Reject artifacts of a locked release with other bytes, whatever their URLs: a mirror has the bytes of its
    original. `known` are the entries of the old lock, and `upgrade` is the command that looks entries up again."""
    found = {request.name: _other_bytes(request, known, now[request.name]) for request in requests}
    messages = [f"{name}: {message}" for name, message in found.items() if message]
    if not messages:
        return
    hint = _accepting([request for request in requests if found[request.name]], upgrade)
    if len(messages) == 1:
        raise VerificationError(messages[0], hint=hint)
    raise VerificationError(
        f"{counted(len(messages), 'artifact')} have other bytes than the lock says", details=messages, hint=hint
    )


def _accepting(wrong: Sequence[ArtifactRequest], upgrade: str) -> str:
    """The hint for artifacts with other bytes than a lock has."""
    own = [request.name for request in wrong if request.own]
    keys = dict.fromkeys(request.key for request in wrong if not request.own)
    accept = [f"run `{upgrade} {' '.join(own)}`"] if own else []
    accept += [f"write {'this' if len(wrong) == 1 else 'the new'} sha256 beside {', '.join(keys)}"] if keys else []
    return f"a release has the same bytes everywhere: find out who replaced it; to accept these, {' and '.join(accept)}"


def _other_bytes(request: ArtifactRequest, known: Mapping[str, LockedArtifact], now: LockedArtifact) -> str:
    """In what an artifact differs from a locked one of the same release; empty if it does not."""
    for name, before in known.items():
        is_same = request.is_at(before.url) or (name == request.name and before.is_release_of(request))
        if not is_same or now.sha256 in (before.sha256, request.sha256):
            continue
        digests = f"sha256 {now.sha256}, but the lock says {before.sha256}"
        if before.url == now.url:
            return f"the bytes of {shown_url(now.url)} have changed since it was locked: {digests}"
        return f"{shown_url(now.url)} has other bytes than {shown_url(before.url)}, which is locked: {digests}"
    return ""


def changed_digests(old: Lock | None, new: Lock, requests: Mapping[str, ArtifactRequest]) -> Iterator[str]:
    """A line for each artifact and each container image whose digest is another one than in the old lock."""
    for name, now in new.artifacts.items():
        before = old.artifacts.get(name) if old else None
        if before and before.sha256 != now.sha256:
            why = _reason(before, now, requests.get(name))
            yield f"{name}: sha256 {before.sha256} -> {now.sha256}: {why}"
    for name, image in new.images.items():
        locked = old.images.get(name) if old else None
        if locked and locked.manifest != image.manifest:
            yield f"{name}: manifest {locked.manifest} -> {image.manifest}: it was looked up again"


def _reason(before: LockedArtifact, now: LockedArtifact, request: ArtifactRequest | None) -> str:
    if request and request.sha256 == now.sha256:
        return f"{request.key} has this sha256"
    if request and not before.is_release_of(request):
        was, is_now = (shown_url(one.release or one.url) for one in (before, now))
        return f"the config asks for {is_now}, no longer for {was}"
    return "it was looked up again"


def rollbacks(old: Lock | None, new: Lock) -> Iterator[str]:
    """A line for each artifact that was signed earlier than the locked one: an older version may have come back."""
    for name, now in new.artifacts.items():
        before = old.artifacts.get(name) if old else None
        was, is_now = (_signing_time(one) for one in (before, now))
        if before and before.sha256 != now.sha256 and is_now and was > is_now:
            yield f"{name} was signed on {is_now}, but the locked one on {was}: this may be an older version"


def _signing_time(entry: LockedArtifact | None) -> str:
    """When the newest file of an artifact was signed; empty if that is not known."""
    return max((one.timestamp or "" for one in ((entry and entry.signed) or {}).values()), default="")


def _entries(lock: Lock) -> dict[str, _Facts]:
    """What identifies each entry."""
    bases = {f"base image for {name}": {**base.identity, **base.place} for name, base in lock.base_images.items()}
    artifacts = {name: artifact.model_dump(exclude=_NO_CONTENT) for name, artifact in lock.artifacts.items()}
    images = {name: image.model_dump() for name, image in lock.images.items()}
    hosts = {f"certificate of {host}": {"needs artifacts.ca": needed} for host, needed in lock.ca_hosts.items()}
    return bases | artifacts | images | hosts


def _changes(before: Mapping[str, _Facts], now: Mapping[str, _Facts]) -> Iterator[Change]:
    for name, facts in now.items():
        known = before.get(name)
        if known is None:
            shown = [key for key, value in facts.items() if key not in _FOLLOWS and value is not None]
            yield Change(name, _NONE, _text(facts, shown, {}))
        elif keys := [key for key in facts if known.get(key) != facts[key]]:
            # The others follow from the digest.
            shown = [key for key in keys if key not in _FOLLOWS] or keys
            yield Change(name, _text(known, shown, facts), _text(facts, shown, known))


def _text(facts: _Facts, keys: Iterable[str], other: _Facts) -> str:
    return ", ".join(f"{key} {_value(facts.get(key), other.get(key))}" for key in keys)


def _value(value: object, other: object) -> str:
    """Of a map, the first item that differs."""
    if not isinstance(value, Mapping):
        return "none" if value is None else str(value)
    others = other if isinstance(other, Mapping) else {}
    key = next(key for key in sorted({*value, *others}) if value.get(key) != others.get(key))
    return f"{key}: {value[key]}" if key in value else f"without {key}"


def check_quarantine(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], days: int, now: str
) -> None:
    """Refuse each artifact that was published less than so many days ago, or nobody knows when.

    One with a sha256 of the config is accepted: the operator has decided on its bytes. `now` is an ISO time.
    """
    faults = [*_faults(requests, locked, days, _parse(now))] if days else []
    if not faults:
        return
    keys = ", ".join(sorted({request.key for request, _ in faults}))
    raise RefusedError(
        f"artifacts.quarantine_days is {days}, which refuses {counted(len(faults), 'artifact')}",
        details=[f"{request.name}: {shown_url(request.url)} {fault}" for request, fault in faults],
        hint=f"wait, or choose an older version; to accept these bytes, write {{url, sha256}} in {keys}",
    )


def _faults(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], days: int, now: datetime.datetime
) -> Iterator[tuple[ArtifactRequest, str]]:
    for name, request in sorted(requests.items()):
        published = locked[name].published
        if request.sha256 is not None:
            continue
        if published is None:
            yield request, "has an unknown age: its server sends no Last-Modified"
        elif (free := _parse(published) + datetime.timedelta(days=days)) > now:
            yield request, f"was published on {published[:10]}, and may be used from {free.strftime(TIME_FORM)} on"


def _parse(time: str) -> datetime.datetime:
    return datetime.datetime.strptime(time, TIME_FORM)


_SHOWN: Final = 20


def verify_contents(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], sources: Sources
) -> None:
    """Reject a lock that has another size or other members of an artifact in the cache than the file."""
    together: dict[str, list[ArtifactRequest]] = {}
    for name, request in requests.items():
        together.setdefault(locked[name].sha256, []).append(request)

    def compare(group: list[ArtifactRequest]) -> dict[str, list[str]]:
        with sources.cache.use(locked[group[0].name].sha256) as file:
            opened = open_artifacts(group, file) if file else {}
            return {name: list(_differences(locked[name], one)) for name, one in opened.items()}

    label = f"comparing {counted(len(requests), 'artifact')} with the lock"
    finished = run_all(compare, [*together.values()], label, sources.console, sources.web.stop)
    found = {name: lines for one in results_of(finished, "artifacts") for name, lines in one.items() if lines}
    if not found:
        return
    lines = [line for name in sorted(found) for line in found[name]]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise VerificationError(
        f"{sources.lock} is wrong about {counted(len(lines), 'file')}",
        details=[*lines[:_SHOWN], *more],
        hint=f"find out who changed it; `{sources.upgrade} {' '.join(sorted(found))}` reads the files again",
    )


def _differences(locked: LockedArtifact, opened: OpenedArtifact) -> Iterator[str]:
    size = opened.file.stat().st_size
    if size != locked.size:
        yield f"{opened.name} has {size} bytes, but the lock says {locked.size}"
    contents = opened.contents
    if contents and contents.dotted != locked.dotted:
        found, known = contents.dotted or "none", locked.dotted or "none"
        yield f"{opened.name} has ./ before {found} of its paths, but the lock says {known}"
    before, now, sizes = locked.members or {}, opened.members or {}, contents.sizes if contents else {}
    for path in sorted(before.keys() | now.keys()):
        where = place(opened.name, path)
        if path not in now:
            yield f"{where} is in the lock, but not in the archive"
        elif path not in before:
            yield f"{where} is in the archive, but not in the lock"
        elif before[path] != now[path]:
            yield f"{where} has sha256 {now[path]}, but the lock says {before[path]}"
        elif locked.sizes and locked.sizes[path] != sizes[path]:
            yield f"{where} has {sizes[path]} bytes, but the lock says {locked.sizes[path]}"
