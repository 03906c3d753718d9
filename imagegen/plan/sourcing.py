"""Applies the config's policy for downloads: allowed hosts and the proxy of the machine. Pure."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from typing import TYPE_CHECKING

from imagegen.config.value_types import plain_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.config.model import ImageConfig
    from imagegen.config.node import Proxy
    from imagegen.documents.yaml import Document
    from imagegen.errors import Problem
    from imagegen.steps.evaluate import EvaluatedStep

# A domain with its subdomains, or an IPv4 address; with a port, only that port.
_ENTRY = re.compile(r"(?:\*?\.)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::([0-9]+))?")


def refused_hosts(config: ImageConfig, evaluated: Iterable[EvaluatedStep], document: Document) -> Iterator[Problem]:
    """A problem for each host that the policy does not allow, with its artifacts."""
    allowed = {plain_host(host) for host in config.artifacts.allowed_hosts}
    refused: dict[str, list[ArtifactRequest]] = {}
    for request in (request for step in evaluated for request in step.requests.values()):
        host = plain_host(urllib.parse.urlsplit(request.url).netloc)
        if host not in allowed:
            refused.setdefault(host, []).append(request)
    for host, requests in sorted(refused.items()):
        names = ", ".join(sorted({request.name for request in requests}))
        overrides = ", ".join(sorted({f"overrides.{request.override}" for request in requests}))
        problem = document.problem(
            ("artifacts", "allowed_hosts"),
            f"{host} is not an allowed host, but {names} would be downloaded from it",
            f"set artifacts.mirror, or {overrides}, or add the host to artifacts.allowed_hosts",
        )
        yield dataclasses.replace(problem, rule="host-allowed")


def download_proxy(proxy: Proxy | None) -> dict[str, object] | None:
    """The proxy of the guest's downloads; None if the config has none. HTTP_PROXY does not matter: all use https.

    .NET matches each exception, a case-insensitive regular expression, against `https://host` or, if the port is not
    443, `https://host:port`."""
    if proxy is None or proxy.for_downloads is None or "*" in proxy.no_proxy:
        return None
    return {"url": proxy.for_downloads, "bypass": sorted({*map(_pattern, proxy.no_proxy)} - {""})}


def _pattern(entry: str) -> str:
    """The regular expression of an exception. Empty for a network, an IPv6 address or a `*` within a name."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return ""
    name, port = match.groups()
    below = "" if re.fullmatch(r"[0-9.]+", name) else r"([^/:]+\.)?"
    ports = "(:[0-9]+)?" if port is None else f":{int(port)}".removesuffix(":443")
    return f"^https://{below}{re.escape(name.lower())}{ports}$"
