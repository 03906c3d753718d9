"""Converts a config's proxy to the proxy of the guest's downloads, with exceptions in .NET's form. Pure.

.NET matches each exception, a case-insensitive regular expression, against `https://host` or, if the port is not 443,
`https://host:port`. All downloads use https, so HTTP_PROXY does not matter.
"""

import re

from imagegen.config.node import Proxy
from imagegen.plan.model import JsonObject

# A domain with its subdomains, or an IPv4 address; with a port, only that port.
_ENTRY = re.compile(r"(?:\*?\.)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::([0-9]+))?")
_DEFAULT_PORT = 443


def download_proxy(proxy: Proxy | None) -> JsonObject | None:
    """The proxy for downloads; None if the config has none."""
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
    return f"^https://{below}{re.escape(name.lower())}{_port(port)}$"


def _port(port: str | None) -> str:
    if port is None:
        return "(:[0-9]+)?"
    return "" if int(port) == _DEFAULT_PORT else f":{int(port)}"
