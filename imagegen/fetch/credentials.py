"""The credentials of hosts with private files: from environment variables to the addresses of these files.

Reads an environment, and lets a cloud sign addresses. No address is ever written to a file or shown.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.fetch.request import host_of, place_of, shown_url

if TYPE_CHECKING:
    from imagegen.fetch.http import Answer, Ask

# For each host, or path on one, the way to sign in by the keys of the config: names of environment variables, or that
# of a cloud.
Ways = Mapping[str, Mapping[str, str]]
# What a cloud does: takes its name, URLs, and how many seconds their addresses must be valid; returns the addresses.
Sign = Callable[[str, Sequence[str], float], Mapping[str, str]]

SIGN_IN: Final = "sign_in"
# For downloads by imagegen itself: a server compares the time only when a request begins.
_VALID_S: Final = 1800.0
_SIGNED_AGAIN_S: Final = 600.0
# Linux limits one variable of a process to 128 KiB, with its name.
_LONGEST_VARIABLE: Final = 128 * 1024 - 256
# What a query and a header can carry.
_VISIBLE: Final = re.compile(r"[!-~]+")
_QUERY: Final = re.compile(r"[!\"$-~]+")


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a private file is, with everything that its host demands."""

    url: str = dataclasses.field(repr=False)
    authorization: str = dataclasses.field(default="", repr=False)
    """The header Authorization. It is sent to the host of the URL only."""


class PrivateHosts:
    """The hosts whose files need credentials. Several threads may use it."""

    def __init__(
        self, ways: Ways, environ: Mapping[str, str], sign: Sign, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ways = ways
        self._environ = environ
        self._sign = sign
        self._now = now
        self._lock = threading.Lock()
        self._signed: dict[str, tuple[float, str]] = {}

    def check(self, urls: Iterable[str] | None = None) -> None:
        """Raise one error for all variables that are not set, or for one that does not have the form of such a value.
        With `urls`, only for the variables that these need."""
        used = self._ways if urls is None else dict.fromkeys(place_of(url, self._ways) for url in urls)
        ways = {place: way for place, way in self._ways.items() if place in used and SIGN_IN not in way}
        missing = [
            (name, host_of(f"https://{place}"))
            for place, way in ways.items()
            for name in way.values()
            if not self._environ.get(name)
        ]
        if missing:
            raise _not_set("artifacts.credentials", missing)
        for place, way in ways.items():
            self._given(way, f"https://{place}")

    def is_private(self, url: str) -> bool:
        """Whether the file needs credentials."""
        return place_of(url, self._ways) is not None

    def address(self, url: str) -> Address:
        """The address from which imagegen downloads a file now. Without credentials, it is the URL."""
        way = self._way(url)
        if SIGN_IN not in way:
            return self._given(way, url) if way else Address(url)
        with self._lock:
            signed_at, address = self._signed.get(url, (0.0, ""))
            if not address or self._now() - signed_at > _SIGNED_AGAIN_S:
                signed_at, address = self._now(), self._sign(way[SIGN_IN], [url], _VALID_S)[url]
                self._signed[url] = signed_at, address
        return Address(address)

    def lasting(self, urls: Iterable[str], valid_s: float) -> dict[str, Address]:
        """The addresses of all these URLs that are private, each valid for so many seconds."""
        found: dict[str, Address] = {}
        to_sign: dict[str, list[str]] = {}
        for url in dict.fromkeys(urls):
            way = self._way(url)
            if SIGN_IN in way:
                to_sign.setdefault(way[SIGN_IN], []).append(url)
            elif way:
                found[url] = self._given(way, url)
        for cloud, private in to_sign.items():
            found |= {url: Address(address) for url, address in self._sign(cloud, private, valid_s).items()}
        return found

    def _way(self, url: str) -> Mapping[str, str]:
        place = place_of(url, self._ways)
        return {} if place is None else self._ways[place]

    def _given(self, way: Mapping[str, str], url: str) -> Address:
        """The address with credentials that the environment has."""
        values = read_values("artifacts.credentials", host_of(url), way, self._environ)
        if "token_env" in values:
            return Address(url, f"Bearer {values['token_env']}")
        if "query_env" in values:
            return Address(f"{url}?{values['query_env'].removeprefix('?')}")
        return Address(url, f"Basic {basic_credentials(values)}")


def read_values(section: str, host: str, way: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values of the variables of a host, by the keys of the config's section."""
    if missing := [name for name in way.values() if not environ.get(name)]:
        raise _not_set(section, [(name, host) for name in missing])
    for key, name in way.items():
        if why := _fault(key, environ[name]):
            # The value is not shown: the variable may hold another secret by mistake.
            raise ConfigError(
                f"{section}: {name}, for {host}, is not valid: {why}",
                hint=f"set {name} to the value alone, without a line break",
            )
    return {key: environ[name] for key, name in way.items()}


def basic_credentials(values: Mapping[str, str]) -> str:
    """User name and password as HTTP's Basic scheme has them: the base64 of `user:password`."""
    return base64.b64encode(f"{values['username_env']}:{values['password_env']}".encode()).decode()


def _not_set(section: str, variables: Sequence[tuple[str, str]]) -> ConfigError:
    """The error for variables that are not set, each with its host."""
    names, hosts = ([*dict.fromkeys(column)] for column in zip(*variables, strict=True))
    return ConfigError(
        f"{section}: {' and '.join(names)} must have the credentials of {' and '.join(hosts)}, and "
        f"{'is' if len(names) == 1 else 'are'} not set",
        hint=f"set {' and '.join(names)} in the environment of imagegen",
    )


def _fault(key: str, value: str) -> str:
    """Why a value is not valid for its key; empty if it is valid."""
    # Python shows each byte that is not UTF-8 as a surrogate.
    if any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in value):
        return "it is not one line of UTF-8 text"
    if key == "token_env" and not _VISIBLE.fullmatch(value):
        return "a bearer token has only visible characters of ASCII"
    if key == "query_env" and not _QUERY.fullmatch(value.removeprefix("?")):
        return "a query has only visible characters of ASCII, and no #"
    return "a user name has no colon" if key == "username_env" and ":" in value else ""


def encode_addresses(addresses: Mapping[str, Address]) -> str:
    """What the builder gets, by the names of the artifacts: the base64 of JSON, so that no program has to quote it."""
    if not addresses:
        return ""
    rows = {name: {"url": one.url, "authorization": one.authorization} for name, one in sorted(addresses.items())}
    value = base64.b64encode(json.dumps(rows).encode()).decode()
    if len(value) > _LONGEST_VARIABLE:
        raise RefusedError(
            f"the addresses of {len(addresses)} private artifacts are too long for the builder: {len(value)} bytes, "
            f"at most {_LONGEST_VARIABLE} are possible",
            hint="use shorter credentials, or copy the artifacts to a host that needs none: imagegen artifacts mirror",
        )
    return value


def address_texts(addresses: Iterable[Address]) -> tuple[str, ...]:
    """Every text of these addresses that no output may have."""
    found: dict[str, None] = {}
    for one in addresses:
        query = one.url.partition("?")[2]
        scheme, _, value = one.authorization.partition(" ")
        found |= dict.fromkeys((query, urllib.parse.quote(query, safe=""), one.authorization, value))
        if scheme == "Basic":
            found[base64.b64decode(value).decode().partition(":")[2]] = None
    return tuple(filter(None, found))


def hint_for(url: str, *, is_private: bool) -> str:
    """The hint for a host that refuses a download because of its credentials."""
    host = host_of(url)
    if is_private:
        return f"check the credentials of {host} in artifacts.credentials, and whether they may read {shown_url(url)}"
    return f"write {host} into artifacts.credentials, with the name of the variable that has its credentials"


def with_credentials(ask: Ask, private: PrivateHosts | None) -> Ask:
    """Asks hosts for documents, those that need credentials with theirs."""

    def ask_privately(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        address = Address(url, authorization)
        if private and private.is_private(url):
            address = private.address(url)
        return ask(address.url, headers, address.authorization)

    return ask_privately
