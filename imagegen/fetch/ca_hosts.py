"""Finds out which hosts need the certificates of `artifacts.ca`: the machine must trust them for its downloads.

Asks each host once for a file, and reads no body. The store of this system does not count, because the builder does not
have it. A bundle that the environment names counts as the public authorities, which it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from imagegen.base.errors import RefusedError
from imagegen.fetch import connection
from imagegen.fetch.authorities import find_authorities
from imagegen.fetch.credentials import Address
from imagegen.fetch.request import host_of, shown_url

if TYPE_CHECKING:
    from imagegen.fetch.lookup import Sources


def find_ca_hosts(urls: Mapping[str, str], known: Mapping[str, bool], sources: Sources) -> dict[str, bool]:
    """By host of these URLs, whether only `artifacts.ca` vouches for it. `known` hosts are not asked."""
    places = {host_of(url): url for _, url in sorted(urls.items(), reverse=True)}
    return {host: known[host] if host in known else _needs_ca(url, sources) for host, url in sorted(places.items())}


def _needs_ca(url: str, sources: Sources) -> bool:
    return not _is_trusted(url, sources, ()) and _is_trusted(url, sources, sources.hosts.authorities)


def _is_trusted(url: str, sources: Sources, added: tuple[bytes, ...]) -> bool:
    make_address = sources.address(url)
    place = make_address() if make_address else Address(url)
    try:
        with connection.get(
            *(place.url, {}),
            environ=sources.environ,
            trust=find_authorities(sources.environ, added, with_system=False),
            hosts=sources.hosts,
            authorization=place.authorization,
            stop=sources.stop,
        ):
            return True
    except connection.UntrustedError:
        return False
    except connection.TransportError as error:
        raise RefusedError(
            f"{shown_url(url)} could not be asked whether the machine needs artifacts.ca for it: {error}",
            hint=error.hint or "try again later",
        ) from error
