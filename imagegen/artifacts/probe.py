"""Reads the first bytes of files on the web, in one attempt that is over in seconds even where nothing answers.

Touches the network. For what can also be had in another way: nothing here retries.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final

import httpx

from imagegen.artifacts import connection
from imagegen.artifacts.request import shown_url
from imagegen.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping

WITHIN_S: Final = 10.0
_STEP_S: Final = 5.0


class UnreachableError(Exception):
    """The file cannot be had from here and now."""


def read_starts(
    urls: Iterable[str], size: int, *, environ: Mapping[str, str], within_s: float = WITHIN_S
) -> list[bytes]:
    """The first `size` bytes of each file; UnreachableError where one of them cannot be had within the time."""
    outcome: queue.SimpleQueue[list[bytes] | BaseException] = queue.SimpleQueue()
    asked = tuple(urls)

    def read() -> None:
        try:
            outcome.put(_read_all(asked, size, environ))
        except BaseException as error:
            outcome.put(error)  # raised again on the caller's thread

    # On a thread that is left behind when it is late: no timeout ends a name lookup, and a name with eight addresses
    # of which none answers takes eight times the timeout of one.
    threading.Thread(target=read, daemon=True).start()
    try:
        found = outcome.get(timeout=within_s)
    except queue.Empty:
        raise UnreachableError(f"{shown_url(asked[0])} did not arrive within {within_s:g} s") from None
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
        raise UnreachableError(f"{shown_url(urls[0])} cannot be had: {str(error) or type(error).__name__}") from error


def _read_start(url: str, size: int, environ: Mapping[str, str], trust: ssl.SSLContext) -> bytes:
    headers = {"Accept-Encoding": "identity"}
    start = b""
    with connection.get(url, headers, environ=environ, trust=trust, connect_s=_STEP_S, read_s=_STEP_S) as response:
        if response.status_code != 200:
            raise UnreachableError(f"{shown_url(url)} cannot be had: the server answered {response.status_code}")
        for chunk in response.iter_raw():
            start += chunk
            if len(start) >= size:
                break
    # What filters and login pages of networks put in the place of what was asked for, mostly with status 200.
    if start.lstrip().startswith(b"<") or response.headers.get("content-type", "").startswith("text/html"):
        raise UnreachableError(
            f"{shown_url(url)} cannot be had: a web page came instead, as filters of networks send it"
        )
    return start[:size]
