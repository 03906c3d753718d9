"""Looks at the Windows updates of a booted model machine: what the config wants, and what Windows has."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.rehearsal.machine.updates import CURRENT_VERSION, INSTALLED, SUPERSEDED, find_packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec

_THERE: Final = frozenset({INSTALLED, SUPERSEDED})


@dataclasses.dataclass(frozen=True)
class WantedUpdates:
    """What a config wants of Windows Update."""

    categories: tuple[str, ...]
    """Their GUIDs."""
    kbs: Mapping[str, int | None]
    """Each with the revision of Windows that it brings, if that is known."""
    exclude: tuple[str, ...]


def describe_wanted(spec: Spec) -> WantedUpdates | None:
    wanted, known = spec.config.windows.updates, spec.facts.updates
    if wanted is None:
        return None
    revisions = {str(row["kb"]): row["ubr"] for row in known.kbs}
    kbs = {kb: ubr if isinstance(ubr, int) else None for kb, ubr in revisions.items()}
    return WantedUpdates(tuple(known.categories), kbs, tuple(wanted.exclude))


def look_at_updates(machine: Machine, wanted: WantedUpdates | None) -> facts.Updates | None:
    if wanted is None:
        return None
    there = {kb for kb, state, _ in find_packages(machine) if state in _THERE}
    ubr = machine.registry.number(CURRENT_VERSION, "UBR") or 0
    offered = machine.updates.offered(machine, wanted.categories, ())
    return facts.Updates(
        missing=tuple(
            kb for kb, revision in wanted.kbs.items() if kb not in there and (revision is None or ubr < revision)
        ),
        offered=tuple(offer.kb for offer in offered if offer.kb not in wanted.exclude),
        waits_for_restart=machine.restart_pending(),
        proxy=machine.updates.proxy or "",
    )
