"""The environment of a child process: proxy, CA and temporary credentials, without those of the user."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS
from imagegen.rehearsal.clouds import import_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# With the user's credentials, profiles, endpoints or proxies, a child process would leave the network.
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
    """Whether a variable of the parent must not be passed to a child process."""
    clouds = [provider(cloud) for cloud in PROVIDERS]
    removed = _REMOVED.union(import_variables(), *(cloud.environment | cloud.unused_credentials for cloud in clouds))
    return any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in removed)


def proxy_variables(proxy_url: str, certificate_file: Path, authority_variables: Iterable[str] = ()) -> dict[str, str]:
    """The variables of the proxy and of the CA file, in every spelling that tools read, and those of the clouds."""
    proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy_url)
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", *authority_variables)
    return {**proxies, "NO_PROXY": "", "no_proxy": "", **dict.fromkeys(names, str(certificate_file))}


def child_environment(parent: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The parent's variables without the removed ones, and the network's own."""
    return {**{name: value for name, value in parent.items() if not is_removed(name)}, **added}
