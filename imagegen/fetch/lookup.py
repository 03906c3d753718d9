"""Looks up what a lock does not have yet: artifacts, container images, and the hosts that need `artifacts.ca`.

`imagegen lock` and the first build call it. Every digest is computed from bytes, those of the cache included. Touches
the network and the cache.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import email.utils
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from imagegen.base.errors import RefusedError
from imagegen.base.lines import counted
from imagegen.base.parallel import errors_in, results_of, run_all
from imagegen.fetch import http
from imagegen.fetch.cache import Cache
from imagegen.fetch.credentials import Address, with_credentials
from imagegen.fetch.download import Download, Fetched, UnchangedError, Version, check_digest
from imagegen.fetch.drift import reject_other_bytes
from imagegen.fetch.http import Answer, Ask, Web, find_authorities
from imagegen.fetch.lock import TIME_FORM, Lock, LockedArtifact, recorded_redirect, release_of
from imagegen.fetch.published import confirm
from imagegen.fetch.request import ArtifactRequest, host_of, shown_url
from imagegen.inspect.archive import OpenedArtifact, open_artifacts
from imagegen.oci.names import ImageRequest, LockedImage
from imagegen.oci.tarball import read_image_tarball
from imagegen.trust.judge import SignaturePolicy, check_signatures
from imagegen.trust.record import (
    CheckedSignatures,
    SignatureError,
    find_differences,
    reject_differences,
)

if TYPE_CHECKING:
    from imagegen.authenticode.model import Trust
    from imagegen.base.console import Console
    from imagegen.fetch.credentials import PrivateHosts

_NOT_FOUND: Final = 404
# Of HTTP.
_FIRST_YEAR: Final = 1991

_Found = dict[str, LockedArtifact]
Group = TypeVar("Group")
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Refresh:
    """Which entries of a lock are looked up again, and which of them may have other bytes now."""

    names: frozenset[str] | None = frozenset()
    """None: all of them."""
    accepts_public: bool = False
    """Whether the bytes of a public URL may have changed. A published file does not change."""
    accepts_own: bool = False
    """Whether the bytes of a URL of the config may have changed."""

    def includes(self, name: str) -> bool:
        return self.names is None or name in self.names

    def accepts(self, request: ArtifactRequest) -> bool:
        return self.includes(request.name) and (self.accepts_own if request.own else self.accepts_public)


KEEP: Final = Refresh()


def find_unlocked_images(requests: Mapping[str, ImageRequest], old: Lock | None, refresh: Refresh) -> set[str]:
    """The container images that must be looked up: those that the old lock does not have, and those to refresh."""
    known = old.images if old else {}
    return {
        name
        for name, request in requests.items()
        if refresh.includes(name) or name not in known or not known[name].answers(request)
    }


def lock_images(
    requests: Mapping[str, ImageRequest],
    old: Lock | None,
    look_up: Callable[[ImageRequest], LockedImage],
    *,
    refresh: Refresh,
    console: Console,
) -> dict[str, LockedImage]:
    """The container images for a lock. `look_up` asks their registry, or a mirror."""
    unlocked = find_unlocked_images(requests, old, refresh)
    kept = requests.keys() - unlocked
    found = {name: image for name, image in (old.images if old else {}).items() if name in kept}
    for name in sorted(unlocked):
        with console.task(f"looking up {name}", None):
            found[name] = look_up(requests[name])
    return dict(sorted(found.items()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """Where artifacts come from: the cache and the network."""

    web: Web
    console: Console
    cache: Cache
    ask: Ask
    """Asks for published digests."""
    private: PrivateHosts | None = None
    """The hosts that need credentials."""
    needs_time: bool = False
    """Whether it must be known when an artifact was published, unless the config has its sha256."""
    lock: str = ""
    """The path of the lock, for `imagegen artifacts list` and messages."""
    upgrade: str = "imagegen lock --upgrade"
    """The command that looks up entries again, for hints."""
    signatures: SignaturePolicy | None = None
    """What must be signed."""
    absent: set[str] = dataclasses.field(default_factory=set)
    """The digests that no server has."""

    def address(self, url: str) -> Callable[[], Address] | None:
        """How the address of a private file is made; None for a file that everybody may read."""
        return functools.partial(self.private.address, url) if self.private and self.private.is_private(url) else None

    def ask_for_digest(self, url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        """Ask for a published digest, which is as private as its file.

        Many files of a folder would have one list of digests: if there is none, it is asked for once."""
        if url in self.absent:
            return Answer(_NOT_FOUND, {}, b"")
        answer = with_credentials(self.ask, self.private)(url, headers, authorization)
        if answer.status == _NOT_FOUND:
            self.absent.add(url)
        return answer

    def keeps(self, request: ArtifactRequest, known: LockedArtifact | None, refresh: Refresh) -> bool:
        """Whether the old entry is right as it is."""
        if known is None or refresh.includes(request.name) or not known.answers(request):
            return False
        if self.signatures and not self.signatures.knows(request.name, known):
            return False
        return not self.needs_time or known.published is not None or request.sha256 is not None


def lock_artifacts(
    requests: Mapping[str, ArtifactRequest], old: Lock | None, sources: Sources, refresh: Refresh = KEEP
) -> dict[str, LockedArtifact]:
    """The artifacts for a lock: the old entries that are right, and the others from their sources."""
    known = old.artifacts if old else {}
    kept = {name for name, request in requests.items() if sources.keeps(request, known.get(name), refresh)}
    if sources.signatures:
        # Before anything is downloaded.
        sources.signatures.reject_locked({name: known[name] for name in kept})
    # By URL and digest: one download may serve several artifacts.
    together: dict[tuple[str, str | None], list[ArtifactRequest]] = {}
    for name, request in requests.items():
        if name not in kept:
            together.setdefault((request.url, request.sha256), []).append(request)
    groups = [*together.values()]
    if sources.private:
        # One error, before anything is downloaded.
        cached = sources.cache.names()
        needed = (group[0] for group in groups if _wanted_digest(group, known, refresh) not in cached)
        sources.private.check(request.url for request in needed)
    found = _look_up_all(groups, known, sources, refresh)
    reject_other_bytes(
        [requests[name] for name in sorted(found) if not refresh.accepts(requests[name])], known, found, sources.upgrade
    )
    releases = {name: {"release": release_of(request)} for name, request in requests.items()}
    entries = {name: known[name] if name in kept else found[name] for name in sorted(requests)}
    return {name: entry.model_copy(update=releases[name]) for name, entry in entries.items()}


@dataclasses.dataclass(frozen=True)
class _Obtained:
    """A file in the cache that nothing removes now."""

    file: Path
    fetched: Fetched
    how: str


@dataclasses.dataclass(frozen=True)
class _Lookup:
    """Looks up artifacts, several at once."""

    sources: Sources
    parts: Path
    trust: Trust | None = None
    """For signatures; None if nothing must be signed."""

    def find(self, requests: list[ArtifactRequest], wanted: str | None, ways: collections.Counter[str]) -> _Found:
        """Look up the URL of these requests, which they share. `wanted` is the digest that it must have, if that is
        known, and `ways` counts where the bytes come from."""
        with contextlib.ExitStack() as held:
            found = self._obtain(requests[0], wanted, held)
            ways[found.how] += 1
            return self._read(requests, found)

    def _obtain(self, request: ArtifactRequest, sha256: str | None, held: contextlib.ExitStack) -> _Obtained:
        """The file: from the cache if its digest is known, or if the server says that it has not changed."""
        cache, record = self.sources.cache, self.sources.cache.find(request.url)
        wanted = sha256 or (record.sha256 if record else None)
        file = held.enter_context(cache.use(wanted)) if wanted else None
        record = record if record and record.sha256 == wanted else None
        version, redirected_to = (record.version, record.redirected_to) if record else (Version(), "")
        knows_time = bool(version.last_modified or request.released or request.sha256)
        if file and wanted and sha256 and (knows_time or not self.sources.needs_time):
            return _Obtained(file, Fetched(wanted, file.stat().st_size, version, redirected_to), "from the cache")
        try:
            known = version if file else Version()
            address = self.sources.address(request.url)
            download = Download(web=self.sources.web, url=request.url, key=request.key, address=address, known=known)
            fetched, part = download.save(self.parts, request.sha256)
        except UnchangedError as same:
            if file and wanted:
                fetched = Fetched(wanted, file.stat().st_size, version, same.redirected_to)
                return _Obtained(file, fetched, "unchanged on the server")
            raise
        cache.record(request.url, fetched, self.sources.lock)
        return _Obtained(held.enter_context(cache.add(part, fetched.sha256)), fetched, "downloaded")

    def _read(self, requests: list[ArtifactRequest], found: _Obtained) -> _Found:
        first, opened = requests[0], open_artifacts(requests, found.file)
        tarball = next((opened[request.name].format for request in requests if request.form == "image"), None)
        images = read_image_tarball(found.file, tarball, first.name) if tarball else None
        checked = self._check_signatures(opened)
        confirmed = confirm(first, found.fetched.sha256, self.sources.ask_for_digest)
        entries = {
            request.name: LockedArtifact(
                url=request.url,
                sha256=found.fetched.sha256,
                size=found.fetched.size,
                members=contents.digests if contents else None,
                sizes=contents.sizes if contents else None,
                dotted=contents.dotted if contents else None,
                images=images if request.form == "image" else None,
                redirected_to=recorded_redirect(found.fetched.redirected_to),
                confirmed=confirmed or None,
                published=_time_of(found.fetched.version, request.released),
            )
            for request, contents in ((request, opened[request.name].contents) for request in requests)
        }
        signed = {name: {"signed": one.signed, "not_programs": one.not_programs} for name, one in checked.items()}
        return {name: entry.model_copy(update=signed.get(name)) for name, entry in entries.items()}

    def verify(
        self, requests: list[ArtifactRequest], locked: Mapping[str, LockedArtifact]
    ) -> dict[str, tuple[str, ...]]:
        """Verify the signatures in the locked bytes: those of the cache, or else of a new download. Return in what the
        lock differs from them."""
        with contextlib.ExitStack() as held:
            first, sha256 = requests[0], locked[requests[0].name].sha256
            found = self._obtain(first, sha256, held)
            check_digest(first.url, found.fetched.sha256, sha256)
            checked = self._check_signatures(open_artifacts(requests, found.file))
        return {name: tuple(find_differences(name, locked[name], one)) for name, one in checked.items()}

    def _check_signatures(self, opened: Mapping[str, OpenedArtifact]) -> dict[str, CheckedSignatures]:
        """The signatures of the artifacts that must have some. One error has all that is wrong."""
        policy, trust = self.sources.signatures, self.trust
        if policy is None or trust is None:
            return {}
        checked = {
            name: check_signatures(policy.requests[name], opened[name], trust, self.parts, policy.crls)
            for name in sorted(opened.keys() & policy.requests.keys())
        }
        if problems := [problem for one in checked.values() for problem in one.problems]:
            raise SignatureError(problems)
        return checked


def _time_of(version: Version, released: str) -> str | None:
    """When a file was published: as its server says, or else the day of its release."""
    try:
        modified = email.utils.parsedate_to_datetime(version.last_modified)
        # A time without a zone is UTC: RFC 9110, 5.6.7.
        modified = (modified if modified.tzinfo else modified.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (TypeError, ValueError, IndexError, OverflowError):
        modified = None
    # An older year is a server's way to say that it does not know.
    if modified is not None and modified.year >= _FIRST_YEAR:
        return modified.strftime(TIME_FORM)
    return f"{released}T00:00:00Z" if released else None


def verify_signatures(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], sources: Sources
) -> None:
    """Verify the signatures of locked artifacts, in the bytes that they have: of the cache, or of a new download. The
    lock must say of them what the bytes say."""
    together: dict[tuple[str, str], list[ArtifactRequest]] = {}
    for name, request in requests.items():
        together.setdefault((request.url, locked[name].sha256), []).append(request)
    label = f"verifying the signatures of {counted(len(requests), 'artifact')}"
    running = _run([*together.values()], lambda lookup, group: lookup.verify(group, locked), sources, label)
    differences = _gather(running)
    reject_differences(differences, sources.lock, sources.upgrade)


def _look_up_all(
    groups: list[list[ArtifactRequest]], known: Mapping[str, LockedArtifact], sources: Sources, refresh: Refresh
) -> _Found:
    if not groups:
        return {}
    ways = collections.Counter[str]()

    def find(lookup: _Lookup, group: list[ArtifactRequest]) -> _Found:
        return lookup.find(group, _wanted_digest(group, known, refresh), ways)

    found = _gather(_run(groups, find, sources, f"looking up {counted(len(groups), 'artifact')}"))
    sources.console.say(", ".join(f"{counted(number, 'artifact')} {how}" for how, number in sorted(ways.items())))
    return found


def _run(
    groups: list[Group], work: Callable[[_Lookup, Group], dict[str, Value]], sources: Sources, label: str
) -> list[concurrent.futures.Future[dict[str, Value]]]:
    """Do the work for each group, several at once."""
    trust = sources.signatures.load_trust() if sources.signatures else None
    with sources.cache.opened() as parts:
        lookup = _Lookup(sources, parts, trust)
        return run_all(functools.partial(work, lookup), groups, label, sources.console, sources.web.stop)


def _wanted_digest(group: list[ArtifactRequest], known: Mapping[str, LockedArtifact], refresh: Refresh) -> str | None:
    """The digest that the config requires, or the one that the URL had when it was locked, unless it is looked up
    again."""
    first = group[0]
    entries = [known[request.name] for request in group if request.name in known and not refresh.includes(request.name)]
    return first.sha256 or next((entry.sha256 for entry in entries if entry.url == first.url), None)


def _gather(finished: list[concurrent.futures.Future[dict[str, Value]]]) -> dict[str, Value]:
    """All artifacts, or all errors, so that one run shows the operator every URL to correct."""
    errors = errors_in(finished)
    wrong = [problem for error in errors if isinstance(error, SignatureError) for problem in error.found]
    if wrong and all(isinstance(error, SignatureError) for error in errors):
        raise SignatureError(wrong)
    return {name: artifact for found in results_of(finished, "downloads") for name, artifact in found.items()}


def find_ca_hosts(urls: Mapping[str, str], known: Mapping[str, bool], sources: Sources) -> dict[str, bool]:
    """By host of these URLs, whether only `artifacts.ca` vouches for it. `known` hosts are not asked."""
    places = {host_of(url): url for _, url in sorted(urls.items(), reverse=True)}
    return {host: known[host] if host in known else _needs_ca(url, sources) for host, url in sorted(places.items())}


def _needs_ca(url: str, sources: Sources) -> bool:
    return not _is_trusted(url, sources, ()) and _is_trusted(url, sources, sources.web.hosts.authorities)


def _is_trusted(url: str, sources: Sources, added: tuple[bytes, ...]) -> bool:
    make_address = sources.address(url)
    place = make_address() if make_address else Address(url)
    try:
        trust = find_authorities(sources.web.environ, added, with_system=False)
        with sources.web.get(place.url, {}, authorization=place.authorization, trust=trust):
            return True
    except http.UntrustedError:
        return False
    except http.TransportError as error:
        raise RefusedError(
            f"{shown_url(url)} could not be asked whether the machine needs artifacts.ca for it: {error}",
            hint=error.hint or "try again later",
        ) from error
