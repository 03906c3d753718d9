"""HTTPS requests as an environment wants them made: its proxy, its certificate authorities, and never another scheme.

Touches the network. Redirects are followed here, one by one, so that none of them leaves HTTPS.
"""

from __future__ import annotations

import contextlib
import ssl
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

import httpx

from imagegen.artifacts.request import shown_url
from imagegen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


CONNECT_TIMEOUT_S = 20.0
READ_TIMEOUT_S = 60.0
REDIRECTS = 10

_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def proxy_for(host: str, environ: Mapping[str, str]) -> str | None:
    """The proxy through which a host is reached over HTTPS; None for directly."""
    proxy = _first(environ, ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    direct = {"no": _first(environ, ("NO_PROXY", "no_proxy"))}
    # proxy_bypass is another function on macOS, which asks the system besides.
    bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed has no entry for it
    if not proxy or bypass(host, direct):
        return None
    address = proxy if "://" in proxy else f"http://{proxy}"
    parsed = _read(address)
    if parsed is None:
        # Not shown: a password may be in it.
        message = "the proxy of HTTPS_PROXY or ALL_PROXY is an address that cannot be read"
        raise ConfigError(message, hint="set HTTPS_PROXY as in http://proxy.example.com:3128")
    if parsed.scheme not in ("http", "https"):
        raise ConfigError(
            "the proxy of HTTPS_PROXY or ALL_PROXY is neither http:// nor https://",
            hint="set HTTPS_PROXY to an HTTP proxy",
        )
    return address


def authorities(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Who is believed about a server's name: the environment's bundle alone when it names one, as other tools do."""
    for variable in _CA_VARIABLES:
        file = environ.get(variable)
        if not file:
            continue
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as error:
            raise ConfigError(
                f"{variable} names {file}, which is not a readable bundle of certificates: {error.strerror or error}",
                hint=f"correct {variable}, or unset it",
            ) from error
    # A company's own authority is in the system's store, and a slim container has no such store: both count.
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


@contextlib.contextmanager
def get(
    url: str,
    headers: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    trust: ssl.SSLContext,
    connect_s: float = CONNECT_TIMEOUT_S,
    read_s: float = READ_TIMEOUT_S,
) -> Iterator[httpx.Response]:
    """The answer at the end of all redirects, its body not read yet. A user in the URL goes to that URL's host only."""
    current = url
    for _ in range(REDIRECTS + 1):
        host = _https_host(current, url)
        client = httpx.Client(
            verify=trust,
            proxy=_proxy(host, environ, trust),
            trust_env=False,
            timeout=httpx.Timeout(read_s, connect=connect_s),
        )
        with client, client.stream("GET", current, headers=dict(headers)) as response:
            location = response.headers.get("location")
            if response.status_code not in _REDIRECTS or location is None:
                yield response
                return
            current = _joined(current, location)
    raise ConfigError(f"{shown_url(url)} was redirected more than {REDIRECTS} times")


def _proxy(host: str, environ: Mapping[str, str], trust: ssl.SSLContext) -> httpx.Proxy | None:
    address = proxy_for(host, environ)
    if address is None:
        return None
    return httpx.Proxy(address, ssl_context=trust if address.startswith("https:") else None)


def _joined(base: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(base, location)
    except ValueError:
        # No host is in it, which is refused with the rest.
        return ""


def _read(url: str) -> httpx.URL | None:
    """The URL where it has a host that client and resolver take; both end with errors of their own otherwise."""
    try:
        parsed = httpx.URL(url)
        readable = parsed.host.encode("idna") and (parsed.port is None or 0 < parsed.port < 2**16)
        return parsed if readable else None
    except (httpx.InvalidURL, ValueError):
        return None


def _https_host(url: str, asked: str) -> str:
    parsed = _read(url)
    if parsed is None:
        raise ConfigError(f"{shown_url(asked)} leads to an address that cannot be read")
    if parsed.scheme != "https":
        led = "" if url == asked else f", where {shown_url(asked)} leads,"
        raise ConfigError(
            f"{shown_url(url)}{led} is not an https:// URL",
            hint="artifacts are fetched over HTTPS only; give such a URL",
        )
    return parsed.host


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")
