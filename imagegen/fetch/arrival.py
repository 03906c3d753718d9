"""The bytes of a download as they arrive: what is there already, in pieces, and at which pace. Writes one file."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from imagegen.fetch import connection

if TYPE_CHECKING:
    import httpx

# A server that sends less in this time is too slow. At this rate, 30 MB would arrive before the deadline.
PACE_S = 60.0
LOWEST_BYTES_PER_S = 16 * 1024
LONGEST_HEADER = 1000

_PIECE_BYTES = 2**18
_PIECE_S = 1.0
# No file has more than 18 digits of bytes, and Python refuses to read a number of thousands.
_SIZE = "([0-9]{1,18})"


class RetryError(Exception):
    """This attempt failed, but the next one may succeed."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class MisbehavedError(RetryError):
    """The server contradicted itself, or was too slow. No later progress makes up for it."""


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
    except connection.TransportError:
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
