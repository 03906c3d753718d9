"""Downloads one URL to a file and computes its sha256. Resumes broken connections, and gives up in bounded time.

Touches the network and the folder of the file. No message shows the query or the credentials of a URL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import secrets
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.files import replacing
from imagegen.fetch import http
from imagegen.fetch.credentials import Address, hint_for
from imagegen.fetch.http import MisbehavedError, RetryError, Web
from imagegen.fetch.request import shown_url

if TYPE_CHECKING:
    import httpx


# A server that sends less in this time is too slow. At this rate, 30 MB would arrive before the deadline.
PACE_S = 60.0
LOWEST_BYTES_PER_S = 16 * 1024
LONGEST_HEADER = 1000

_BUFFER = 2**20
_PIECE_BYTES = 2**18
_PIECE_S = 1.0
# No file has more than 18 digits of bytes, and Python refuses to read a number of thousands.
_SIZE = "([0-9]{1,18})"


@dataclasses.dataclass(frozen=True)
class Version:
    """What a server says of the version of a file: its ETag and when it was last modified. Empty if it does not."""

    etag: str = ""
    last_modified: str = ""

    @property
    def condition(self) -> dict[str, str]:
        """The headers of a request for the file, unless it still has this version."""
        given = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in given.items() if value}

    @property
    def validator(self) -> str:
        """Proves that two responses have the same bytes. RFC 9110, 13.1.5: a weak tag does not, and must not be sent as
        If-Range."""
        return "" if self.etag.startswith("W/") else self.etag or self.last_modified


def version_of(response: httpx.Response) -> Version:
    """The version that a response names."""
    given = (response.headers.get(name, "") for name in ("etag", "last-modified"))
    return Version(*(value if len(value) <= LONGEST_HEADER else "" for value in given))


@dataclasses.dataclass
class Part:
    """The bytes downloaded so far."""

    file: IO[bytes]
    digest: hashlib._Hash = dataclasses.field(default_factory=hashlib.sha256)
    size: int = 0
    total: int | None = None
    version: Version = Version()
    """Without its validator, a download starts again instead of resuming."""
    redirected_to: str = ""

    def restart(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.digest = hashlib.sha256()
        self.size, self.total, self.version = 0, None, Version()

    def write(self, data: bytearray) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def accept_whole(self, response: httpx.Response) -> None:
        """Start again with a response that has the whole file."""
        self.restart()
        length = re.fullmatch(_SIZE, response.headers.get("content-length", ""))
        self.version, self.total = version_of(response), int(length[1]) if length else None

    def accept_range(self, response: httpx.Response) -> None:
        """Continue with a response that has the rest of the file, if it is the rest of these bytes."""
        match = re.fullmatch(rf"bytes {_SIZE}-[0-9]+/{_SIZE}", response.headers.get("content-range", ""))
        version, fault = version_of(response), ""
        if match is None or int(match[1]) != self.size:
            fault = "the server sent another range than requested"
        elif not version.validator:
            fault = "the server does not say of which version of the file it sent the rest"
        elif version.validator != self.version.validator:
            fault = "the file changed on the server during the download"
        elif self.total not in (None, int(match[2])):
            fault = f"the server first said that the file has {self.total} bytes, and then {match[2]}"
        if match is None or fault:
            self.restart()
            raise MisbehavedError(fault)
        self.total = int(match[2])


def pieces(chunks: Iterator[bytes], clock: Callable[[], float]) -> Iterator[tuple[bytearray, float]]:
    """The bytes in larger pieces, which cost less, each with the time. A broken connection ends after its last byte."""
    piece, now, last = bytearray(), 0.0, None
    try:
        for chunk in chunks:
            piece += chunk
            now = clock()
            if last is None or len(piece) >= _PIECE_BYTES or now - last >= _PIECE_S:
                yield piece, now
                piece, last = bytearray(), now
    except http.TransportError:
        if piece:
            yield piece, now
        raise
    if piece:
        yield piece, now


@dataclasses.dataclass
class Pace:
    """How fast a response arrives."""

    since: float | None = None
    size: int = 0

    def check(self, size: int, now: float) -> None:
        """Note that so many bytes arrived. Too few in a minute are an error."""
        if self.since is None:
            self.since = now
        self.size += size
        passed = now - self.since
        if passed < PACE_S:
            return
        if self.size < LOWEST_BYTES_PER_S * passed:
            raise MisbehavedError(f"only {self.size} bytes arrived within {passed:.0f} s")
        self.since, self.size = now, 0


LIMIT_BYTES = 4 * 2**30
DEADLINE_S = 1800.0
# How long to wait after each consecutive failure; the failure after the last pause ends the download.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST_RETRY_AFTER_S = 60.0

_REFUSING_STATUSES = frozenset({401, 403})
_GZIP_NAMES = (".gz", ".tgz")


class StatusError(ConfigError):
    """The server has no such file for us. Another attempt would have the same status."""

    status = 0


@dataclasses.dataclass(frozen=True)
class Fetched:
    """The digest and the size of a downloaded file, and what the server said of its version."""

    sha256: str
    size: int
    version: Version = dataclasses.field(default_factory=Version)
    redirected_to: str = ""
    """Where the bytes are from, without the query, if the URL redirects."""


def fetch(
    url: str,
    into: Path,
    web: Web,
    *,
    expected_sha256: str | None = None,
    key: str = "",
    address: Callable[[], Address] | None = None,
) -> Fetched:
    """Download to `into`, which appears only when it is complete and has the expected digest, if one is given.

    `key` is the config's key of the URL, for hints. `address` gives the address of a private file, for each attempt.
    """
    with writing(into):
        into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(into, mode=0o600) as file:
            found = Download(web=web, url=url, key=key, address=address).fill(file)
            check_digest(url, found.sha256, expected_sha256)
    return found


@contextlib.contextmanager
def writing(file: Path) -> Iterator[None]:
    """Name the file if it cannot be written."""
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"{file} cannot be written: {error.strerror or error}",
            hint=f"check free space and permissions of {file.parent}",
        ) from error


def check_digest(url: str, sha256: str, expected: str | None) -> None:
    """Reject a file that does not have the expected digest, if there is one."""
    if expected not in (None, sha256):
        raise VerificationError(
            f"{shown_url(url)} has sha256 {sha256}, but {expected} is expected",
            hint="find out which one is right; do not copy the new digest only to make this message go away",
        )


class UnchangedError(Exception):
    """The server still has the known version. `redirected_to` is as in `Fetched`."""

    def __init__(self, redirected_to: str = "") -> None:
        super().__init__()
        self.redirected_to = redirected_to


@dataclasses.dataclass(frozen=True, kw_only=True)
class Download:
    """One URL to download. `known` is the version that does not have to be downloaded again."""

    web: Web
    url: str
    key: str = ""
    address: Callable[[], Address] | None = None
    """The address of a private file, for each attempt."""
    known: Version = dataclasses.field(default_factory=Version)
    limit: int | None = None
    """How many bytes it may have; None: as many as an artifact."""

    @property
    def label(self) -> str:
        return shown_url(self.url)

    @property
    def most_bytes(self) -> int:
        return LIMIT_BYTES if self.limit is None else self.limit

    def save(self, folder: Path, expected: str | None) -> tuple[Fetched, Path]:
        """Download to a new file in a folder, which has the expected digest, if one is given."""
        part = folder / secrets.token_hex(16)
        try:
            with writing(part):
                handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(handle, "w+b", buffering=_BUFFER) as file:
                    fetched = self.fill(file)
            check_digest(self.url, fetched.sha256, expected)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return fetched, part

    def fill(self, file: IO[bytes]) -> Fetched:
        """Retry until the file is complete. UnchangedError if the server still has the known version."""
        part, deadline = Part(file), self.web.now() + DEADLINE_S
        try:
            self.web.retry(lambda: self._attempt(part, deadline), self.label, PAUSES_S, lambda: part.size, deadline)
        except (http.TransportError, RetryError) as error:
            reason, advice = str(error), "try again later"
            if isinstance(error, http.UnknownHostError):
                reason = f"there is no host of this name ({reason})"
                advice = "check the host name, DNS and HTTPS_PROXY; in a closed network set artifacts.mirror"
            raise RefusedError(
                f"{self.label} could not be downloaded: {reason}", hint=error.hint or self._hint(advice)
            ) from error
        return Fetched(part.digest.hexdigest(), part.size, part.version, part.redirected_to)

    def _attempt(self, part: Part, deadline: float) -> None:
        # Identity here and raw bytes below: bytes that a library decompressed would have another digest.
        headers = {"Accept-Encoding": "identity"}
        if part.size and part.version.validator:
            headers |= {"Range": f"bytes={part.size}-", "If-Range": part.version.validator}
        else:
            headers |= self.known.condition
        place = self.address() if self.address else Address(self.url)
        with self.web.get(place.url, headers, authorization=place.authorization) as response:
            self._accept(response, part)
            pace = Pace()
            with self._progress(part.total) as advance:
                advance(part.size)
                # No chunk size: a chunk that is not full yet would be lost when the connection breaks.
                for piece, now in pieces(http.chunks(response, PACE_S), self.web.now):
                    self.web.check_cancelled()
                    self._check_limits(part.size + len(piece), now, deadline)
                    part.write(piece)
                    advance(len(piece))
                    pace.check(len(piece), now)
        if part.total not in (None, part.size):
            raise RetryError(f"{part.size} of {part.total} bytes arrived")

    def _accept(self, response: httpx.Response, part: Part) -> None:
        """Decide by the headers whether the body starts or continues the file."""
        status, redirected_to = response.status_code, http.redirected_to(response)
        if status == 416 or status in http.TEMPORARY_STATUSES:
            reason = f"the server responded with status {status}"
            if status == 416:
                part.restart()
                raise MisbehavedError(reason)
            raise RetryError(reason, _retry_after(response))
        if status == 304 and self.known.condition:
            raise UnchangedError(redirected_to)
        if status == 206:
            part.accept_range(response)
        elif status == 200:
            part.accept_whole(response)
        else:
            advice = "check that the version and the URL exist"
            if status in _REFUSING_STATUSES:
                advice = hint_for(self.url, is_private=self.address is not None)
            error = StatusError(
                f"{self.label} cannot be downloaded: the server responded with status {status}", hint=self._hint(advice)
            )
            error.status = status
            raise error
        # The path of a private file may be a secret too.
        part.redirected_to = "" if self.address else redirected_to
        self._reject_compressed(response)
        if part.total is not None and part.total > self.most_bytes:
            raise self._too_large()

    def _reject_compressed(self, response: httpx.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        # Many servers say this of a file that is compressed anyway.
        is_gzip = encoding in ("gzip", "x-gzip") and urllib.parse.urlsplit(self.url).path.lower().endswith(_GZIP_NAMES)
        if encoding not in ("", "identity") and not is_gzip:
            raise VerificationError(
                f"{self.label}: the server compressed the file (Content-Encoding: {encoding[:40]}), but imagegen asked "
                "for its own bytes",
                hint=self._hint("switch the compression off for this file"),
            )

    def _progress(self, total: int | None) -> contextlib.AbstractContextManager[Callable[[int], object]]:
        console = self.web.console
        return console.task(f"downloading {self.label}", total) if console else contextlib.nullcontext(lambda _: None)

    def _check_limits(self, size: int, now: float, deadline: float) -> None:
        if size > self.most_bytes:
            raise self._too_large()
        if now > deadline:
            raise RefusedError(
                f"{self.label} was not downloaded within {DEADLINE_S / 60:g} minutes",
                hint=self._hint("try again later"),
            )

    def _too_large(self) -> VerificationError:
        unit, name = (2**20, "MiB") if self.most_bytes < 2**30 else (2**30, "GiB")
        return VerificationError(f"{self.label} is larger than {self.most_bytes / unit:g} {name}")

    def _hint(self, advice: str) -> str:
        return f"{advice}, or set {self.key} to another URL" if self.key else advice


def _retry_after(response: httpx.Response) -> float:
    seconds = response.headers.get("retry-after", "")
    return min(float(seconds), LONGEST_RETRY_AFTER_S) if seconds.isdecimal() else 0.0
