"""A config's proxy in; the proxy of the guest's downloads, with its exceptions as .NET takes them, out. Pure.

.NET matches each exception, a regular expression in any case, against `https://host` or, where the port is not 443,
`https://host:port`. All downloads are over https, so HTTP_PROXY is no business of theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.config.network import Proxy
    from imagegen.plan.model import JsonObject

# A name or an IPv4 address with all that is below it, or at one port only.
_ENTRY = re.compile(r"(?:\*?\.)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::([0-9]+))?")
_DEFAULT_PORT = 443


def download_proxy(proxy: Proxy | None) -> JsonObject | None:
    """None where downloads go through no proxy of the config's."""
    if proxy is None or proxy.for_downloads is None or "*" in proxy.no_proxy:
        return None
    return {"url": proxy.for_downloads, "bypass": sorted({*map(_pattern, proxy.no_proxy)} - {""})}


def _pattern(entry: str) -> str:
    """Empty for what no name of a host can be matched with: a network, an IPv6 address, a `*` within a name."""
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
