"""Reads the first bytes of files on the web, in one attempt that takes seconds even where no server responds.

Touches the network. Does not retry: callers have another way to get what they need.
"""

import queue
import ssl
import threading
from collections.abc import Iterable, Mapping
from typing import Final

import httpx

from imagegen.artifacts import connection
from imagegen.artifacts.request import shown_url
from imagegen.errors import ConfigError

WITHIN_S: Final = 10.0
_STEP_S: Final = 5.0


class UnreachableError(Exception):
    """The file cannot be downloaded now from this machine."""


def read_starts(
    urls: Iterable[str], size: int, *, environ: Mapping[str, str], within_s: float = WITHIN_S
) -> list[bytes]:
    """The first `size` bytes of each file; UnreachableError where one of them does not arrive in time."""
    outcome: queue.SimpleQueue[list[bytes] | BaseException] = queue.SimpleQueue()
    wanted = tuple(urls)

    def read() -> None:
        try:
            outcome.put(_read_all(wanted, size, environ))
        except BaseException as error:
            outcome.put(error)  # raised again on the caller's thread

    # On a thread that is abandoned when it is late: no timeout ends a name lookup, and a name with eight addresses
    # takes eight times the timeout where none of them responds.
    threading.Thread(target=read, daemon=True).start()
    try:
        found = outcome.get(timeout=within_s)
    except queue.Empty:
        raise UnreachableError(f"{shown_url(wanted[0])} did not arrive within {within_s:g} s") from None
    if isinstance(found, BaseException):
        raise found
    return found


def _read_all(urls: tuple[str, ...], size: int, environ: Mapping[str, str]) -> list[bytes]:
    try:
        trust = connection.authorities(environ)
        return [_read_start(url, size, environ, trust) for url in urls]
    except ConfigError as error:
        raise UnreachableError(error.message) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(
            f"{shown_url(urls[0])} cannot be downloaded: {str(error) or type(error).__name__}"
        ) from error


def _read_start(url: str, size: int, environ: Mapping[str, str], trust: ssl.SSLContext) -> bytes:
    headers = {"Accept-Encoding": "identity"}
    start = b""
    with connection.get(url, headers, environ=environ, trust=trust, connect_s=_STEP_S, read_s=_STEP_S) as response:
        if response.status_code != 200:
            raise UnreachableError(
                f"{shown_url(url)} cannot be downloaded: the server responded with status {response.status_code}"
            )
        for chunk in response.iter_raw():
            start += chunk
            if len(start) >= size:
                break
    # Web filters and login pages put a page in the place of the file, mostly with status 200.
    if start.lstrip().startswith(b"<") or response.headers.get("content-type", "").startswith("text/html"):
        raise UnreachableError(f"{shown_url(url)} cannot be downloaded: a login page or a web filter answered instead")
    return start[:size]
