"""Windows Update on the model machine: what it offers, and what Windows makes of it at the next start.

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
    from collections.abc import Collection, Iterator

    from imagegen.rehearsal.machine.windows import Machine

INSTALL_UPDATES_SHA256: Final = "5eb46cd80f50611780f95d57def4ece0cb297e2733ed6d142804b6d9234b8973"
"""The digest of the script that this module is a model of."""
REBOOT_REQUIRED: Final = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired"
PACKAGES: Final = SERVICING + r"\Packages"
CURRENT_VERSION: Final = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
STAGED, SUPERSEDED, PENDING, INSTALLED, PERMANENT = 64, 80, 96, 112, 128
SECURITY: Final = "0FA1201D-4330-4FA8-8AE9-B877473B6441"
DEFINITIONS: Final = "E0789628-CE08-4437-BE74-2495B842F43B"
NO_NAME, PENDING_RESTART, NOT_APPLICABLE = "0x8024402c", "0x80240016", "0x80240017"


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
    serviced: bool = True
    """Whether Windows keeps a package of it. Definitions of Defender have none."""
    download_code: str = ""
    install_code: str = ""
    rolls_back: bool = False
    """Windows takes it back at the next start."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How an update ended: without a code it was installed."""

    offer: Offer
    step: str = ""
    code: str = ""


class WindowsUpdate:
    """What is offered, and what waits for a restart."""

    def __init__(self) -> None:
        self.offers: list[Offer] = []
        self.installed: set[str] = set()
        self.pending: list[Offer] = []
        self.needed_proxy: str | None = None
        """Without this proxy of WinHTTP the server cannot be found."""
        self.proxy: str | None = None
        """WinHTTP's."""
        self.asked = False
        """Whether the volatile key is there, which a start removes."""
        self.searches = 0

    def search(self, machine: Machine, categories: Collection[str], kbs: Collection[str]) -> list[Offer] | str:
        """What is offered of that, or the code with which Windows Update fails."""
        self.searches += 1
        if self.needed_proxy is not None and self.proxy != self.needed_proxy:
            return NO_NAME
        return self.offered(machine, categories, kbs)

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

    def install(self, machine: Machine, offers: list[Offer]) -> Iterator[Ended]:
        """Download all, and install those that are here."""
        blocked = machine.restart_pending()
        for offer in offers:
            if offer.download_code:
                yield Ended(offer, "download", offer.download_code)
            elif blocked or offer.install_code:
                yield Ended(offer, "install", offer.install_code or PENDING_RESTART)
            else:
                self._apply(machine, offer)
                yield Ended(offer)

    def _apply(self, machine: Machine, offer: Offer) -> None:
        if offer.serviced:
            self._write(machine, offer, PENDING if offer.restarts else INSTALLED)
        if offer.restarts:
            self.pending.append(offer)
            machine.registry.make_key(REBOOT_REQUIRED)
        else:
            self.installed.add(offer.kb)

    def restarted(self, machine: Machine) -> None:
        """What waited becomes installed, or is taken back. A cumulative update replaces those before it."""
        self.asked = False
        for offer in self.pending:
            if offer.rolls_back:
                self._write(machine, offer, STAGED)
                continue
            self.installed.add(offer.kb)
            if offer.ubr is not None:
                for name in list(machine.registry.subkeys(PACKAGES)):
                    if name.startswith("Package_for_RollupFix~"):
                        machine.registry.write(rf"{PACKAGES}\{name}", "CurrentState", Value("DWord", SUPERSEDED))
                machine.registry.write(CURRENT_VERSION, "UBR", Value("DWord", offer.ubr))
            if offer.serviced:
                self._write(machine, offer, INSTALLED)
        self.pending = []

    def _write(self, machine: Machine, offer: Offer, state: int) -> None:
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
        Offer("KB9000004", DEFINITIONS, restarts=False, serviced=False),
    ]
