"""Makes HTTPS requests with the proxy and the certificate authorities of an environment.

Touches the network. Follows redirects one by one, so that none of them leaves HTTPS.
"""

import contextlib
import ssl
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping

import httpx

from imagegen.artifacts.request import shown_url
from imagegen.errors import ConfigError

CONNECT_TIMEOUT_S = 20.0
READ_TIMEOUT_S = 60.0
REDIRECTS = 10

_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def proxy_for(host: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for HTTPS requests to a host; None where the host is reached directly."""
    proxy = _first(environ, ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    direct = {"no": _first(environ, ("NO_PROXY", "no_proxy"))}
    # On macOS proxy_bypass is another function, which also asks the system.
    bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed has no entry for it
    if not proxy or bypass(host, direct):
        return None
    address = proxy if "://" in proxy else f"http://{proxy}"
    parsed = _parse_url(address)
    if parsed is None:
        # The address is not shown, because it may hold a password.
        message = "the proxy in HTTPS_PROXY or ALL_PROXY is not a valid URL"
        raise ConfigError(message, hint="set HTTPS_PROXY to a URL such as http://proxy.example.com:3128")
    if parsed.scheme not in ("http", "https"):
        raise ConfigError(
            "the proxy in HTTPS_PROXY or ALL_PROXY must start with http:// or https://",
            hint="set HTTPS_PROXY to the URL of an HTTP proxy",
        )
    return address


def authorities(environ: Mapping[str, str]) -> ssl.SSLContext:
    """The trusted certificate authorities. A bundle that the environment names replaces all others."""
    for variable in _CA_VARIABLES:
        file = environ.get(variable)
        if not file:
            continue
        try:
            return ssl.create_default_context(cafile=file)
        except OSError as error:
            raise ConfigError(
                f"{variable} names {file}, which is not a readable certificate bundle: {error.strerror or error}",
                hint=f"correct {variable}, or unset it",
            ) from error
    # A company's own authority is in the system's store, which a slim container does not have: both are used.
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
    """The response after all redirects, its body not read yet. Credentials in the URL go to that URL's host only."""
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
            current = _join_url(current, location)
    raise ConfigError(f"{shown_url(url)} was redirected more than {REDIRECTS} times")


def _proxy(host: str, environ: Mapping[str, str], trust: ssl.SSLContext) -> httpx.Proxy | None:
    address = proxy_for(host, environ)
    if address is None:
        return None
    return httpx.Proxy(address, ssl_context=trust if address.startswith("https:") else None)


def _join_url(base: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(base, location)
    except ValueError:
        # An empty URL has no host: _https_host rejects it.
        return ""


def _parse_url(url: str) -> httpx.URL | None:
    """The URL, or None where the client or the resolver would fail with an error of its own."""
    try:
        parsed = httpx.URL(url)
        is_valid = parsed.host.encode("idna") and (parsed.port is None or 0 < parsed.port < 2**16)
        return parsed if is_valid else None
    except (httpx.InvalidURL, ValueError):
        return None


def _https_host(url: str, first_url: str) -> str:
    parsed = _parse_url(url)
    if parsed is None:
        problem = "is not a valid URL" if url == first_url else "redirects to an invalid URL"
        raise ConfigError(f"{shown_url(first_url)} {problem}")
    if parsed.scheme != "https":
        redirected = "" if url == first_url else f", to which {shown_url(first_url)} redirects,"
        raise ConfigError(
            f"{shown_url(url)}{redirected} must start with https://",
            hint="artifacts are downloaded over HTTPS only: use an https:// URL",
        )
    return parsed.host


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")
