"""Makes HTTPS requests with the proxy and the certificate authorities of an environment, and tries again what may pass.

Touches the network. Follows redirects one by one, so that none of them leaves HTTPS or the allowed hosts. The timeout
of a read ends no response that always sends something, so another thread ends late responses by their connections.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.hosts import ANY_HOST, HostPolicy
from imagegen.fetch.request import host_of, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from imagegen.base.console import Console

Value = TypeVar("Value")
_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def find_authorities(
    environ: Mapping[str, str], added: tuple[bytes, ...] = (), *, with_system: bool = True
) -> ssl.SSLContext:
    """The trusted certificate authorities: public ones, those of the system unless it does not count, and those that
    are `added`, as DER. A bundle that the environment names takes the place of the first two."""
    if variable := bundle_variable(environ):
        file = environ[variable]
        try:
            return _authorities_of(file, Path(file).stat().st_mtime_ns, added)
        except OSError as error:
            raise ConfigError(
                f"{variable} names {file}, which is not a readable certificate bundle: {error.strerror or error}",
                hint=f"correct {variable}, or unset it",
            ) from error
    return _common_authorities(added, with_system=with_system)


def bundle_variable(environ: Mapping[str, str]) -> str:
    """The variable that names a bundle of authorities; empty if there is none."""
    return next((name for name in _VARIABLES if environ.get(name)), "")


# Reading hundreds of certificates takes longer than a small request, and each lock makes many.
@functools.lru_cache(maxsize=8)
def _authorities_of(file: str, _changed: int, added: tuple[bytes, ...]) -> ssl.SSLContext:
    return _with(ssl.create_default_context(cafile=file), added)


@functools.lru_cache(maxsize=8)
def _common_authorities(added: tuple[bytes, ...], *, with_system: bool) -> ssl.SSLContext:
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    if with_system:
        # A company's own authority is in the system's store, which a slim container does not have: both are used.
        context.load_default_certs()
    return _with(context, added)


def _with(context: ssl.SSLContext, added: tuple[bytes, ...]) -> ssl.SSLContext:
    for certificate in added:
        context.load_verify_locations(cadata=certificate)
    return context


_CHECK_S: Final = 0.2


class ResponseLimit:
    """What a response must do next, and until when. It starts without a limit."""

    def __init__(self, stop: threading.Event | None) -> None:
        self.broken = ""
        """Why the response was ended; empty if it was not."""
        self._stop = stop
        self._sockets: list[socket.socket] = []
        self._limit: tuple[float, str] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ResponseLimit:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def add(self, connected: socket.socket) -> None:
        """A connection of the response. TLS takes it over, in a socket of its own."""
        if isinstance(connected, ssl.SSLSocket):
            # Python takes a TLS connection that was cut for one that ended: half a file would look complete.
            connected.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # typeshed has only the argument
        self._sockets.append(connected)
        if self.broken:
            _end(connected)

    def set(self, within_s: float, reason: str) -> None:
        """From now on so much time; `reason` says what did not happen, if it is over."""
        self._limit = time.monotonic() + within_s, reason

    def suspend(self) -> None:
        """Time does not count while the response waits for its reader."""
        self._limit = None

    def _watch(self) -> None:
        while not self._over.wait(_CHECK_S):
            limit = self._limit
            if self._stop is not None and self._stop.is_set():
                self.broken = "cancelled"
            elif limit is not None and time.monotonic() > limit[0]:
                self.broken = limit[1]
            if self.broken:
                for one in [*self._sockets]:
                    _end(one)
                return


def _end(connected: socket.socket) -> None:
    # It may be closed already. This ends a read that waits, which closing the socket would not.
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


CONNECT_TIMEOUT_S = 20.0
# A server that sends nothing is asked again, so this is less than the time of the headers.
READ_TIMEOUT_S = 45.0
# For the headers of all redirects together: a server that sends a byte a second never runs into the timeout of a read.
HEADERS_TIMEOUT_S = 60.0
BODY_TIMEOUT_S = 120.0
REDIRECTS = 10
# For files that are needed only if they arrive at once: for all of them, and for each step of a request.
PROBE_S = 10.0
_PROBE_STEP_S = 5.0

# As containerd: a larger index, manifest or config is no image.
LIMIT_BYTES: Final = 8 * 2**20
ANSWER_TIMEOUT_S: Final = 120.0
ASK_PAUSES_S: Final = (1.0, 4.0)
TEMPORARY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_LIMIT, _REDIRECTED = "imagegen_limit", "imagegen_redirected"
_NO_HEADERS = "no response within {:g} s"
_PROXY_HINT = "check HTTPS_PROXY and ALL_PROXY, and write the hosts that need no proxy into NO_PROXY"
_CA_HINT = "write the file with its root into artifacts.ca, or add the root to the certificates of this system"


class UnreachableError(Exception):
    """The file cannot be downloaded now from this machine."""


class TransportError(Exception):
    """There was no connection, or it broke, or the response cannot be read."""

    after_s = 0.0

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class LateError(TransportError):
    """The next part of the response did not arrive in time."""


class LastingError(TransportError):
    """Another attempt would end in the same way."""


class RetryError(Exception):
    """This attempt failed, but the next one may succeed."""

    hint = ""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class MisbehavedError(RetryError):
    """The server contradicted itself, or was too slow. No later progress makes up for it."""


class UnknownHostError(LastingError):
    """There is no host of this name."""


class UntrustedError(LastingError):
    """No trusted authority issued the certificate of the server."""


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
        raise ConfigError(
            "the proxy in HTTPS_PROXY or ALL_PROXY is not a valid URL",
            hint="set HTTPS_PROXY to a URL such as http://proxy.example.com:3128",
        )
    if parsed.scheme not in ("http", "https"):
        raise ConfigError(
            "the proxy in HTTPS_PROXY or ALL_PROXY must start with http:// or https://",
            hint="set HTTPS_PROXY to the URL of an HTTP proxy",
        )
    return address


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a registry answered. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Requests a URL with headers. `authorization`, which may be empty, is sent to the host of the URL only, and not on a
# redirect. An OSError means that the host does not answer.
Ask = Callable[[str, Mapping[str, str], str], Answer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Web:
    """How hosts are asked: with the proxy and the authorities of an environment, and only hosts that are allowed."""

    environ: Mapping[str, str]
    console: Console | None = None
    """Learns of each attempt that failed."""
    hosts: HostPolicy = ANY_HOST
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Another thread sets it to end every request at once."""
    pause: Callable[[float], object] | None = None
    """Waits between two attempts, in place of `stop`."""
    now: Callable[[], float] = time.monotonic
    """The clock of deadlines."""
    connect_s: float = CONNECT_TIMEOUT_S
    read_s: float = READ_TIMEOUT_S

    @contextlib.contextmanager
    def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        authorization: str = "",
        within_s: float = BODY_TIMEOUT_S,
        trust: ssl.SSLContext | None = None,
    ) -> Iterator[httpx.Response]:
        """The response after all redirects, its body not read yet. Credentials in the URL go to that URL only, and
        `authorization` to its host. The body must arrive `within_s`."""
        import httpx

        trust = trust or find_authorities(self.environ, self.hosts.authorities)
        current, headers_until = url, time.monotonic() + HEADERS_TIMEOUT_S
        for _ in range(REDIRECTS + 1):
            if time.monotonic() > headers_until:
                raise LastingError(_NO_HEADERS.format(HEADERS_TIMEOUT_S))
            proxy = proxy_for(_https_host(current, url, self.hosts), self.environ)
            client = httpx.Client(
                verify=trust,
                proxy=proxy and httpx.Proxy(proxy, ssl_context=trust if proxy.startswith("https:") else None),
                trust_env=False,
                timeout=httpx.Timeout(self.read_s, connect=self.connect_s),
            )
            secret = {"Authorization": authorization} if authorization and host_of(current) == host_of(url) else {}
            request, route = (
                client.build_request("GET", current, headers={**headers, **secret}),
                _Route(proxy, self.environ),
            )
            with client, _begun(client, request, route, _Times(headers_until, within_s), self.stop) as response:
                if not response.has_redirect_location:
                    response.extensions[_REDIRECTED] = "" if current == url else _shown_redirect(response, url)
                    yield response
                    return
                try:
                    current = urllib.parse.urljoin(current, response.headers["location"])
                except ValueError:
                    # An empty URL has no host: the next round rejects it.
                    current = ""
        raise ConfigError(f"{shown_url(url)} was redirected more than {REDIRECTS} times")

    def check_cancelled(self) -> None:
        """End this thread if the run ends."""
        if self.stop.is_set():
            raise concurrent.futures.CancelledError

    def retry(
        self,
        attempt: Callable[[], Value],
        shown: str,
        pauses: Sequence[float],
        progress: Callable[[], int] = lambda: 0,
        deadline: float = math.inf,
    ) -> Value:
        """The result of an attempt that succeeds, or the last error. Only consecutive failures count, and any progress
        begins a new count; but a server may misbehave only so often."""
        failures = misbehaved = 0
        while True:
            self.check_cancelled()
            before = progress()
            try:
                return attempt()
            except (TransportError, RetryError) as error:
                self.check_cancelled()
                failures = 1 if progress() > before else failures + 1
                misbehaved += isinstance(error, (MisbehavedError, LateError))
                count = max(failures, misbehaved)
                wait = max(pauses[min(count, len(pauses)) - 1], error.after_s)
                if isinstance(error, LastingError) or count > len(pauses) or self.now() + wait > deadline:
                    raise
                if self.console:
                    self.console.say(f"{shown}: {error}; retrying in {wait:g} s")
                (self.pause or self.stop.wait)(wait)

    def ask(self, url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        """A document of bounded size. A ConnectionError means that the host does not answer."""
        try:
            return self.retry(lambda: self._ask_once(url, headers, authorization), shown_url(url), ASK_PAUSES_S)
        except _TemporaryAnswerError as error:
            return error.answer
        except UntrustedError as error:
            raise RefusedError(f"{shown_url(url)} could not be read: {error}", hint=error.hint) from error
        except TransportError as error:
            raise ConnectionError(str(error)) from error

    def _ask_once(self, url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        with self.get(url, headers, within_s=ANSWER_TIMEOUT_S, authorization=authorization) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > LIMIT_BYTES:
                    raise VerificationError(f"{shown_url(url)} is larger than {LIMIT_BYTES // 2**20} MiB")
            found = {key.lower(): text for key, text in response.headers.items()}
            answer = Answer(response.status_code, found, bytes(body))
        if answer.status in TEMPORARY_STATUSES:
            raise _TemporaryAnswerError(answer)
        return answer


class _TemporaryAnswerError(RetryError):
    """An answer whose status may pass."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"status {answer.status}")
        self.answer = answer


@dataclasses.dataclass(frozen=True)
class _Times:
    """When a response must begin, and how long it may take."""

    headers_until: float
    within_s: float


@dataclasses.dataclass
class _Route:
    """How a request goes to its host, to name what fails on the way."""

    proxy: str | None
    environ: Mapping[str, str]
    is_connected: bool = False
    """Whether there is a connection: to the proxy, if there is one."""

    def explain(self, error: httpx.RequestError, reason: str) -> TransportError:
        """The error of this route for one of the client."""
        import httpx

        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return UntrustedError(f"{reason}{self._via()}", self._untrusted_hint())
        if isinstance(error, httpx.ProxyError):
            kind = LastingError if reason.startswith("4") else TransportError
            return kind(f"the proxy {self._shown_proxy()} refuses the connection: {reason}", _PROXY_HINT)
        kind = UnknownHostError if _is_unknown_host(error) else TransportError
        if self.proxy and not self.is_connected:
            return kind(f"the proxy {self._shown_proxy()} cannot be reached: {reason}", _PROXY_HINT)
        return kind(f"{reason}{self._via()}")

    def late(self, reason: str, *, has_headers: bool) -> TransportError:
        """The error for a response that was ended because of its time."""
        return (LateError if has_headers else LastingError)(f"{reason}{self._via()}")

    def _via(self) -> str:
        return f" (through the proxy {self._shown_proxy()})" if self.proxy else ""

    def _shown_proxy(self) -> str:
        return shown_url(self.proxy or "")

    def _untrusted_hint(self) -> str:
        if variable := bundle_variable(self.environ):
            return f"{variable} replaces all public authorities by those in its file: unset it, and {_CA_HINT}"
        return f"if your own authority issued the certificate, or your proxy inspects TLS, {_CA_HINT}"


@contextlib.contextmanager
def _begun(
    client: httpx.Client,
    request: httpx.Request,
    route: _Route,
    times: _Times,
    stop: threading.Event,
) -> Iterator[httpx.Response]:
    """The response to one request. It must begin and end in time."""

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            route.is_connected = True
            limit.add(info["return_value"].get_extra_info("socket"))

    request.extensions["trace"] = trace
    has_headers = False
    with ResponseLimit(stop) as limit:
        limit.set(times.headers_until - time.monotonic(), _NO_HEADERS.format(HEADERS_TIMEOUT_S))
        try:
            with _own_errors(route), contextlib.closing(client.send(request, stream=True)) as response:
                has_headers = True
                limit.set(times.within_s, f"it did not arrive within {times.within_s:g} s")
                response.extensions[_LIMIT] = limit
                yield response
        except TransportError as error:
            if limit.broken:
                raise route.late(limit.broken, has_headers=has_headers) from error
            raise
        # The end of the connection looks like the end of the body, if nothing says how long that is.
        if limit.broken:
            raise route.late(limit.broken, has_headers=True)


@contextlib.contextmanager
def _own_errors(route: _Route | None = None) -> Iterator[None]:
    import httpx

    try:
        yield
    except httpx.RequestError as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx.ReadError) and "UNEXPECTED_EOF" in reason:
            reason = "the connection was cut before the end of the response"
        raise (route.explain(error, reason) if route else TransportError(reason)) from error


def _is_unknown_host(error: BaseException | None) -> bool:
    """Whether the resolver said that the name does not exist. That it has no answer now is another error."""
    while error is not None and not isinstance(error, socket.gaierror):
        error = error.__cause__ or error.__context__
    return error is not None and error.args[0] in (socket.EAI_NONAME, socket.EAI_NODATA)


def chunks(response: httpx.Response, silence_s: float | None = None) -> Iterator[bytes]:
    """The body as it was sent, while it arrives. With `silence_s`, each chunk has so much time, instead of all."""
    limit: ResponseLimit = response.extensions[_LIMIT]
    with _own_errors():
        body = response.iter_raw()
        while True:
            if silence_s is not None:
                limit.set(silence_s, f"no bytes arrived within {silence_s:g} s")
            chunk = next(body, None)
            if chunk is None:
                return
            if silence_s is not None:
                limit.suspend()
            yield chunk


def redirected_to(response: httpx.Response) -> str:
    """Where the response is from, without the query; empty if the request was not redirected."""
    return str(response.extensions[_REDIRECTED])


def _shown_redirect(response: httpx.Response, url: str) -> str:
    place = shown_url(str(response.url))
    return "" if place == shown_url(url) else place


def _parse_url(url: str) -> httpx.URL | None:
    """The URL, or None where the client or the resolver would fail with an error of its own."""
    import httpx

    try:
        parsed = httpx.URL(url)
        return parsed if parsed.host.encode("idna") and (parsed.port is None or 0 < parsed.port < 2**16) else None
    except (httpx.InvalidURL, ValueError):
        return None


def _https_host(url: str, first_url: str, hosts: HostPolicy) -> str:
    """The host of the URL, if it may be asked. `first_url` is the one that was requested."""
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
    # Without user and password, and with the name in ASCII.
    host = parsed.netloc.decode()
    if not hosts.is_allowed(host):
        redirected = "" if url == first_url else f", to which {shown_url(first_url)} redirects,"
        listed = "one of artifacts.denied_hosts" if hosts.is_denied(host) else "not one of artifacts.allowed_hosts"
        raise ConfigError(
            f"{host}{redirected} is {listed}",
            hint="use another URL, one that leads to no denied host"
            if hosts.is_denied(host)
            else f"add {host} to artifacts.allowed_hosts, or use a URL that stays on an allowed host",
        )
    return parsed.host


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def read_starts(
    urls: Iterable[str], size: int, *, environ: Mapping[str, str], within_s: float = PROBE_S
) -> list[bytes]:
    """The first `size` bytes of each file; UnreachableError where one of them does not arrive in time."""
    wanted = tuple(urls)
    outcome: concurrent.futures.Future[list[bytes]] = concurrent.futures.Future()

    def read() -> None:
        try:
            outcome.set_result(_read_all(wanted, size, environ))
        except BaseException as error:
            outcome.set_exception(error)

    # On a thread that is abandoned when it is late: no timeout ends a name lookup, and a name with eight addresses
    # takes eight times the timeout where none of them responds.
    threading.Thread(target=read, daemon=True).start()
    concurrent.futures.wait([outcome], within_s)
    if not outcome.done():
        raise UnreachableError(f"{shown_url(wanted[0])} did not arrive within {within_s:g} s")
    return outcome.result()


def _read_all(urls: tuple[str, ...], size: int, environ: Mapping[str, str]) -> list[bytes]:
    web = Web(environ=environ, connect_s=_PROBE_STEP_S, read_s=_PROBE_STEP_S)
    try:
        return [_read_start(url, size, web) for url in urls]
    except ConfigError as error:
        raise UnreachableError(error.message) from error
    except TransportError as error:
        raise UnreachableError(f"{shown_url(urls[0])} cannot be downloaded: {error}") from error


def _read_start(url: str, size: int, web: Web) -> bytes:
    start = b""
    with web.get(url, {"Accept-Encoding": "identity"}, within_s=PROBE_S) as response:
        if response.status_code != 200:
            raise UnreachableError(
                f"{shown_url(url)} cannot be downloaded: the server responded with status {response.status_code}"
            )
        for chunk in chunks(response):
            start += chunk
            if len(start) >= size:
                break
    # Web filters and login pages put a page in the place of the file, mostly with status 200.
    if start.lstrip().startswith(b"<") or response.headers.get("content-type", "").startswith("text/html"):
        raise UnreachableError(f"{shown_url(url)} cannot be downloaded: a login page or a web filter answered instead")
    return start[:size]
