"""The ports that Windows gives to programs which ask for any port, and those that it never gives."""

from __future__ import annotations

import dataclasses
from typing import Final

from imagegen.rehearsal.machine.refusal import RefusedByWindows

PROTOCOLS: Final = ("tcp", "udp")
_LAST: Final = 65535
# netsh accepts no other ranges.
_FIRST: Final = 1025
_LEAST: Final = 255


@dataclasses.dataclass(frozen=True, order=True)
class PortRange:
    """Some ports in a row."""

    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count - 1

    def overlaps(self, other: PortRange) -> bool:
        return self.start <= other.end and other.start <= self.end


# The range of Windows since Vista.
_DEFAULT: Final = PortRange(49152, 16384)


class Ports:
    """The dynamic range and the excluded ranges of each protocol. A restart keeps them."""

    def __init__(self) -> None:
        self._dynamic = dict.fromkeys(PROTOCOLS, _DEFAULT)
        self._excluded: dict[str, tuple[PortRange, ...]] = dict.fromkeys(PROTOCOLS, ())
        self.in_use: dict[str, set[int]] = {protocol: set() for protocol in PROTOCOLS}
        """Ports that a program has open. They cannot be excluded."""

    def dynamic(self, protocol: str) -> PortRange:
        return self._dynamic[protocol]

    def excluded(self, protocol: str) -> tuple[PortRange, ...]:
        return tuple(sorted(self._excluded[protocol]))

    def given(self, protocol: str) -> frozenset[int]:
        """The ports that a program can get which asks for any."""
        dynamic = self._dynamic[protocol]
        excluded = {port for one in self._excluded[protocol] for port in range(one.start, one.end + 1)}
        return frozenset(range(dynamic.start, dynamic.end + 1)) - excluded

    def set_dynamic(self, protocol: str, ports: PortRange) -> None:
        if ports.start < _FIRST or ports.count < _LEAST or ports.end > _LAST:
            raise RefusedByWindows("The parameter is incorrect.")
        self._dynamic[protocol] = ports

    def exclude(self, protocol: str, ports: PortRange) -> None:
        if ports.start < 1 or ports.count < 1 or ports.end > _LAST:
            raise RefusedByWindows("The parameter is incorrect.")
        is_open = any(ports.start <= port <= ports.end for port in self.in_use[protocol])
        if is_open or any(ports.overlaps(other) for other in self._excluded[protocol]):
            message = "The process cannot access the file because it is being used by another process."
            raise RefusedByWindows(message)
        self._excluded[protocol] += (ports,)

    def include(self, protocol: str, ports: PortRange) -> None:
        """The ports are no longer excluded."""
        self._excluded[protocol] = tuple(other for other in self._excluded[protocol] if other != ports)
