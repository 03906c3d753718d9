"""Downloads one URL to a file and computes its sha256. Resumes broken connections, and gives up in bounded time.

Touches the network and the folder of the file. No message shows the query or the credentials of a URL.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import httpx

from imagegen.artifacts import connection
from imagegen.artifacts.credentials import Address, hint_for
from imagegen.artifacts.request import shown_url
from imagegen.errors import ConfigError, RefusedError, VerificationError
from imagegen.files import replacing

if TYPE_CHECKING:
    from imagegen.console import Console

LIMIT_BYTES = 4 * 2**30
DEADLINE_S = 1800.0
# How long to wait after each consecutive failure; the failure after the last pause ends the download.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST_RETRY_AFTER_S = 60.0

_TEMPORARY_STATUSES = frozenset({408, 416, 425, 429, 500, 502, 503, 504})
_REFUSING_STATUSES = frozenset({401, 403})


class StatusError(ConfigError):
    """The server has no such file for us. Another attempt would have the same status."""

    def __init__(self, message: str, status: int, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Fetched:
    """The digest and the size of a downloaded file."""

    sha256: str
    size: int


def fetch(
    url: str,
    into: Path,
    *,
    environ: Mapping[str, str],
    console: Console,
    expected_sha256: str | None = None,
    key: str = "",
    address: Callable[[], Address] | None = None,
    stop: threading.Event | None = None,
    pause: Callable[[float], object] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Fetched:
    """Download to `into`, which appears only when it is complete and has the expected digest, if one is given.

    `key` is the config's key of the URL, for hints. `address` gives the address of a private file, for each attempt.
    Another thread sets `stop` to cancel the download. `pause` waits between attempts, and `now` is the clock of the
    deadline.
    """
    ended = stop or threading.Event()
    download = _Download(url, environ, console, key, address, ended, pause or ended.wait, now)
    try:
        into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(into, mode=0o600) as file:
            part = _Part(file)
            download.fill(part)
            found = Fetched(part.digest.hexdigest(), part.size)
            if expected_sha256 is not None and found.sha256 != expected_sha256:
                raise VerificationError(
                    f"{shown_url(url)} has sha256 {found.sha256}, but {expected_sha256} is expected",
                    hint="find out which one is right; do not copy the new digest only to make this message go away",
                )
    except OSError as error:
        raise RefusedError(
            f"{into} cannot be written: {error.strerror or error}",
            hint=f"check free space and permissions of {into.parent}",
        ) from error
    return found


class _Retry(Exception):
    """This attempt failed, but the next one may succeed."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclasses.dataclass
class _Part:
    """The bytes downloaded so far."""

    file: IO[bytes]
    digest: hashlib._Hash = dataclasses.field(default_factory=hashlib.sha256)
    size: int = 0
    validator: str = ""
    """Proves that a later response has the same bytes. Without it, a download starts again instead of resuming."""

    def restart(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)


@dataclasses.dataclass(frozen=True)
class _Download:
    url: str
    environ: Mapping[str, str]
    console: Console
    key: str
    address: Callable[[], Address] | None
    stop: threading.Event
    pause: Callable[[float], object]
    now: Callable[[], float]

    @property
    def label(self) -> str:
        return shown_url(self.url)

    def fill(self, part: _Part) -> None:
        """Retry until the file is complete. Only consecutive failures count, and any bytes are progress."""
        deadline = self.now() + DEADLINE_S
        trust = connection.authorities(self.environ)
        failures = 0
        while True:
            before = part.size
            try:
                self.attempt(part, trust, deadline)
            except (httpx.TransportError, _Retry) as error:
                reason = str(error) or type(error).__name__
                if "CERTIFICATE_VERIFY_FAILED" in reason:
                    raise RefusedError(
                        f"{self.label} could not be downloaded: {reason}",
                        hint="if your proxy inspects TLS, set SSL_CERT_FILE to the file with its CA certificate",
                    ) from error
                failures = 1 if part.size > before else failures + 1
                wait = max(PAUSES_S[min(failures, len(PAUSES_S)) - 1], getattr(error, "after_s", 0.0))
                if failures > len(PAUSES_S) or self.now() + wait > deadline:
                    raise RefusedError(
                        f"{self.label} could not be downloaded: {reason}", hint=self.hint("try again later")
                    ) from error
                self.console.say(f"{self.label}: {reason}; retrying in {wait:g} s")
                self.pause(wait)
                self.check_cancelled()
            else:
                return

    def attempt(self, part: _Part, trust: ssl.SSLContext, deadline: float) -> None:
        # Identity here and raw bytes below: bytes that a library decompressed would have another digest.
        headers = {"Accept-Encoding": "identity"}
        if part.size and part.validator:
            headers |= {"Range": f"bytes={part.size}-", "If-Range": part.validator}
        place = self.address() if self.address else Address(self.url)
        with connection.get(
            place.url, headers, environ=self.environ, trust=trust, authorization=place.authorization
        ) as response:
            total = self.accept(response, part)
            with self.console.task(f"downloading {self.label}", total) as advance:
                advance(part.size)
                # No chunk size: a chunk that is not full yet would be lost when the connection breaks.
                for chunk in response.iter_raw():
                    self.check_cancelled()
                    self.check_limits(part.size + len(chunk), deadline)
                    part.write(chunk)
                    advance(len(chunk))
        if total is not None and part.size != total:
            raise _Retry(f"{part.size} of {total} bytes arrived")

    def accept(self, response: httpx.Response, part: _Part) -> int | None:
        """Decide by the headers whether the body starts or continues the file; return its total size, if known."""
        status = response.status_code
        if status in _TEMPORARY_STATUSES:
            if status == 416:
                part.restart()
            raise _Retry(f"the server responded with status {status}", _retry_after(response))
        if status == 206:
            match = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+)", response.headers.get("content-range", ""))
            if match is None or int(match[1]) != part.size or _validator(response) not in ("", part.validator):
                part.restart()
                raise _Retry("the server sent another range than requested")
            total: int | None = int(match[2])
        elif status == 200:
            part.restart()
            part.validator = _validator(response)
            length = response.headers.get("content-length", "")
            total = int(length) if length.isdecimal() else None
        else:
            advice = "check that the version and the URL exist"
            if status in _REFUSING_STATUSES:
                advice = hint_for(self.url, is_private=self.address is not None)
            raise StatusError(
                f"{self.label} cannot be downloaded: the server responded with status {status}",
                status,
                self.hint(advice),
            )
        if total is not None and total > LIMIT_BYTES:
            raise self.too_large()
        return total

    def check_cancelled(self) -> None:
        if self.stop.is_set():
            raise concurrent.futures.CancelledError

    def check_limits(self, size: int, deadline: float) -> None:
        if size > LIMIT_BYTES:
            raise self.too_large()
        if self.now() > deadline:
            raise RefusedError(
                f"{self.label} was not downloaded within {DEADLINE_S / 60:g} minutes", hint=self.hint("try again later")
            )

    def too_large(self) -> VerificationError:
        return VerificationError(f"{self.label} is larger than {LIMIT_BYTES / 2**30:g} GiB")

    def hint(self, advice: str) -> str:
        return f"{advice}, or set {self.key} to another URL" if self.key else advice


def _validator(response: httpx.Response) -> str:
    tag: str = response.headers.get("etag", "")
    # RFC 9110, 13.1.5: a weak tag does not identify bytes and must not be sent as If-Range.
    return "" if tag.startswith("W/") else tag or response.headers.get("last-modified", "")


def _retry_after(response: httpx.Response) -> float:
    seconds = response.headers.get("retry-after", "")
    return min(float(seconds), LONGEST_RETRY_AFTER_S) if seconds.isdecimal() else 0.0
