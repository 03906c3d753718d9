"""The stand-in for Windows Update: what it offers, and what Windows makes of it at the next start.

The numbers of its own updates are of no real one. What a plan names by number it offers too, as an update that is not
cumulative: the rehearsal cannot know what that is.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.features import SERVICING
from imagegen.rehearsal.machine.registry import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from imagegen.rehearsal.machine.windows import Machine

REBOOT_REQUIRED: Final = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired"
PACKAGES: Final = SERVICING + r"\Packages"
CURRENT_VERSION: Final = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
SUPERSEDED, PENDING, INSTALLED = 80, 96, 112
SECURITY: Final = "0FA1201D-4330-4FA8-8AE9-B877473B6441"
DEFINITIONS: Final = "E0789628-CE08-4437-BE74-2495B842F43B"


@dataclasses.dataclass(frozen=True)
class Offer:
    """An update that Windows Update has for this release."""

    kb: str
    category: str = SECURITY
    ubr: int | None = None
    """The revision that it brings, if it is cumulative."""
    after: str = ""
    """Offered only when this one is installed."""
    restarts: bool = True
    """Whether it waits for a restart. Definitions of Defender do not, and Windows keeps no package of them."""


class WindowsUpdate:
    """What is offered, and what waits for a restart."""

    def __init__(self) -> None:
        self.offers: list[Offer] = []
        self.installed: set[str] = set()
        self.pending: list[Offer] = []
        self.proxy: str | None = None
        """WinHTTP's."""
        self.asked = False
        """Whether it was asked since the last start."""
        self.rounds = 0
        self.chosen: set[str] = set()
        """The updates that the plan's step installed."""

    def offered(self, machine: Machine, categories: Collection[str], kbs: Collection[str]) -> list[Offer]:
        known = {offer.kb for offer in self.offers}
        every = [*self.offers, *(Offer(kb) for kb in sorted(kbs) if kb not in known)]
        offered = [offer for offer in every if self._is_offered(machine, offer)]
        newest = max((offer.ubr for offer in offered if offer.ubr is not None), default=None)
        return [
            offer
            for offer in offered
            if offer.kb in kbs or (offer.category in categories and (offer.ubr is None or offer.ubr == newest))
        ]

    def _is_offered(self, machine: Machine, offer: Offer) -> bool:
        if offer.kb in self.installed or offer in self.pending or (offer.after and offer.after not in self.installed):
            return False
        return offer.ubr is None or offer.ubr > (machine.registry.number(CURRENT_VERSION, "UBR") or 0)

    def install(self, machine: Machine, offers: Sequence[Offer]) -> bool:
        """Install these. Whether a restart is needed."""
        self.asked, self.rounds = True, self.rounds + 1
        for offer in offers:
            self.chosen.add(offer.kb)
            if offer.restarts:
                self.pending.append(offer)
                _write(machine, offer, PENDING)
                machine.registry.make_key(REBOOT_REQUIRED)
            else:
                self.installed.add(offer.kb)
        return any(offer.restarts for offer in offers)

    def restarted(self, machine: Machine) -> None:
        """What waited becomes installed. A cumulative update replaces those before it."""
        self.asked = False
        for offer in self.pending:
            self.installed.add(offer.kb)
            if offer.ubr is not None:
                for name in list(machine.registry.subkeys(PACKAGES)):
                    if name.startswith("Package_for_RollupFix~"):
                        machine.registry.write(rf"{PACKAGES}\{name}", "CurrentState", Value("DWord", SUPERSEDED))
                machine.registry.write(CURRENT_VERSION, "UBR", Value("DWord", offer.ubr))
            _write(machine, offer, INSTALLED)
        self.pending = []


def _write(machine: Machine, offer: Offer, state: int) -> None:
    publisher = "31bf3856ad364e35~amd64~"
    named = f"Package_for_{offer.kb}~{publisher}~1.0"
    name = named if offer.ubr is None else f"Package_for_RollupFix~{publisher}~{machine.build}.{offer.ubr}.1.1"
    key = rf"{PACKAGES}\{name}"
    machine.registry.make_key(key)
    machine.registry.write(key, "CurrentState", Value("DWord", state))
    origin = rf"\\?\C:\Windows\SoftwareDistribution\Download\{offer.kb}.cab"
    machine.registry.write(key, "InstallLocation", Value("String", origin))


def find_packages(machine: Machine) -> Iterator[tuple[str, int, int | None]]:
    """The KB, state and revision of each package of Windows. Only a cumulative update has a revision."""
    for name in machine.registry.subkeys(PACKAGES):
        key = rf"{PACKAGES}\{name}"
        revision = re.match(r"Package_for_RollupFix~.*~[0-9]+\.([0-9]+)\.", name)
        origin = machine.registry.text(key, "InstallLocation") or ""
        for kb in sorted(set(re.findall(r"KB[0-9]+", f"{name} {origin}"))):
            yield kb, machine.registry.number(key, "CurrentState") or 0, int(revision[1]) if revision else None


def stock_offers(ubr: int) -> list[Offer]:
    """What Windows Update offers for a stock machine: a cumulative update that is replaced by the next, which needs an
    update of the installer first, and definitions of Defender."""
    return [
        Offer("KB9000001", ubr=ubr + 10),
        Offer("KB9000002"),
        Offer("KB9000003", ubr=ubr + 20, after="KB9000002"),
        Offer("KB9000004", DEFINITIONS, restarts=False),
    ]
