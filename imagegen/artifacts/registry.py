"""Asks container registries over HTTPS, with the proxy and the certificate authorities of an environment.

Touches the network. Retries what may pass, a few times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from imagegen.artifacts import connection
from imagegen.artifacts.image_lookup import Answer, Ask
from imagegen.artifacts.request import shown_url
from imagegen.errors import RefusedError, VerificationError
from imagegen.hosts import ANY_HOST, HostPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.console import Console

# As containerd: a larger index, manifest or config is no image.
LIMIT_BYTES: Final = 8 * 2**20
ANSWER_TIMEOUT_S: Final = 120.0
PAUSES_S: Final = (1.0, 4.0)
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def ask_over_https(
    environ: Mapping[str, str],
    console: Console,
    pause: Callable[[float], object] = time.sleep,
    hosts: HostPolicy = ANY_HOST,
) -> Ask:
    """How a lookup asks registries. Also a redirect stays on `hosts`."""

    def ask(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        for wait in (*PAUSES_S, None):
            try:
                answer = _ask_once(url, headers, authorization, environ, hosts)
                reason = f"status {answer.status}"
            except connection.TransportError as error:
                answer, reason = None, str(error)
                if "CERTIFICATE_VERIFY_FAILED" in reason:
                    raise RefusedError(
                        f"{shown_url(url)} could not be read: {reason}",
                        hint="if your proxy inspects TLS, set SSL_CERT_FILE to the file with its CA certificate",
                    ) from error
            if answer is not None and (answer.status not in _TEMPORARY or wait is None):
                return answer
            if wait is None:
                raise ConnectionError(reason)
            console.say(f"{shown_url(url)}: {reason}; retrying in {wait:g} s")
            pause(wait)
        raise AssertionError("the last attempt has no pause")

    return ask


def _ask_once(
    url: str, headers: Mapping[str, str], authorization: str, environ: Mapping[str, str], hosts: HostPolicy
) -> Answer:
    trust = connection.authorities(environ)
    with connection.get(
        url, headers, environ=environ, trust=trust, hosts=hosts, authorization=authorization
    ) as response:
        body = bytearray()
        ends = time.monotonic() + ANSWER_TIMEOUT_S
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > LIMIT_BYTES:
                raise VerificationError(f"{shown_url(url)} is larger than {LIMIT_BYTES // 2**20} MiB")
            if time.monotonic() > ends:
                raise connection.TransportError(f"it did not arrive within {ANSWER_TIMEOUT_S:g} s")
        return Answer(response.status_code, {key.lower(): text for key, text in response.headers.items()}, bytes(body))
