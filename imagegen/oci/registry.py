"""Asks container registries over HTTPS, with the proxy and the certificate authorities of an environment.

Touches the network. Retries what may pass, a few times.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import RefusedError, VerificationError
from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.fetch import connection
from imagegen.fetch.authorities import find_authorities
from imagegen.fetch.request import shown_url
from imagegen.oci.image_lookup import Answer, Ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.base.console import Console

# As containerd: a larger index, manifest or config is no image.
LIMIT_BYTES: Final = 8 * 2**20
ANSWER_TIMEOUT_S: Final = 120.0
PAUSES_S: Final = (1.0, 4.0)
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def ask_over_https(
    environ: Mapping[str, str],
    console: Console,
    pause: Callable[[float], object] | None = None,
    hosts: HostPolicy = ANY_HOST,
    stop: threading.Event | None = None,
) -> Ask:
    """How a lookup asks registries. Also a redirect stays on `hosts`. Another thread sets `stop` to end them."""
    ended = stop or threading.Event()

    def ask(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        for wait in (*PAUSES_S, None):
            try:
                answer = _ask_once(url, headers, authorization, environ, hosts, ended)
                reason = f"status {answer.status}"
            except connection.TransportError as error:
                _check_cancelled(ended)
                answer, reason = None, str(error)
                if isinstance(error, connection.UntrustedError):
                    raise RefusedError(f"{shown_url(url)} could not be read: {reason}", hint=error.hint) from error
                if isinstance(error, connection.LastingError):
                    raise ConnectionError(reason) from error
            if answer is not None and (answer.status not in _TEMPORARY or wait is None):
                return answer
            if wait is None:
                raise ConnectionError(reason)
            console.say(f"{shown_url(url)}: {reason}; retrying in {wait:g} s")
            (pause or ended.wait)(wait)
            _check_cancelled(ended)
        raise AssertionError("the last attempt has no pause")

    return ask


def _check_cancelled(ended: threading.Event) -> None:
    if ended.is_set():
        raise concurrent.futures.CancelledError


def _ask_once(
    url: str,
    headers: Mapping[str, str],
    authorization: str,
    environ: Mapping[str, str],
    hosts: HostPolicy,
    stop: threading.Event,
) -> Answer:
    trust = find_authorities(environ, hosts.authorities)
    with connection.get(
        *(url, headers),
        environ=environ,
        trust=trust,
        hosts=hosts,
        within_s=ANSWER_TIMEOUT_S,
        authorization=authorization,
        stop=stop,
    ) as response:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > LIMIT_BYTES:
                raise VerificationError(f"{shown_url(url)} is larger than {LIMIT_BYTES // 2**20} MiB")
        return Answer(response.status_code, {key.lower(): text for key, text in response.headers.items()}, bytes(body))
