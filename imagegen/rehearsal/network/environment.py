"""The environment of a child inside the network: proxy, CA and throw-away credentials, and none of the user's own."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS
from imagegen.rehearsal.clouds import import_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# A user's credentials, profiles, endpoints or proxies would lead a child out of the rehearsal.
_REMOVED = frozenset(
    {
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "PIP_CERT",
    }
)


def is_removed(name: str) -> bool:
    """Whether a variable of the parent must not reach a child of the rehearsal."""
    removed = _REMOVED.union(import_variables(), *(provider(cloud).environment for cloud in PROVIDERS))
    return any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in removed)


def proxy_variables(proxy_url: str, certificate_file: Path, authority_variables: Iterable[str] = ()) -> dict[str, str]:
    """What leads a child through the proxy, in every spelling that the tools read, and in these of a cloud's own."""
    proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy_url)
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", *authority_variables)
    return {**proxies, "NO_PROXY": "", "no_proxy": "", **dict.fromkeys(names, str(certificate_file))}


def child_environment(parent: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The parent's variables without those of `is_removed`, and the network's own."""
    return {**{name: value for name, value in parent.items() if not is_removed(name)}, **added}
