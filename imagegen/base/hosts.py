"""Which hosts imagegen may ask, by the config's lists of names, and which authorities it trusts there. Pure."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Final

_PORT: Final = re.compile(r":[0-9]*$")


def plain_host(host: str) -> str:
    """A host in the form for comparisons: in lower case, and without the default port of https.

    A dot at the end of a name changes nothing about where it leads."""
    port = _PORT.search(host)
    name = host[: port.start()] if port else host
    shown_port = port[0] if port and port[0] not in (":", ":443") else ""
    return f"{name.lower().rstrip('.')}{shown_port}"


@dataclasses.dataclass(frozen=True)
class HostPolicy:
    """The hosts that may be asked. Without allowed hosts, all that are not denied."""

    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    authorities: tuple[bytes, ...] = ()
    """The certificates of `artifacts.ca`, as DER. They are trusted beside the public authorities."""

    @classmethod
    def of(cls, allowed: Iterable[str], denied: Iterable[str]) -> "HostPolicy":
        """The policy of two lists as a config has them."""
        return cls(frozenset(map(plain_host, allowed)), frozenset(map(plain_host, denied)))

    def is_denied(self, host: str) -> bool:
        """Whether a host is denied. An entry without a port denies the host on each of its ports."""
        return bool({plain_host(host), plain_host(_PORT.sub("", host))} & self.denied)

    def is_allowed(self, host: str) -> bool:
        """Whether a host may be asked."""
        return not self.is_denied(host) and (not self.allowed or plain_host(host) in self.allowed)


ANY_HOST: Final = HostPolicy()
