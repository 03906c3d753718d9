"""The faults of one rehearsal: arranged on its stage, and counted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.faults.fault import Place
from imagegen.rehearsal.faults.table import check_place, find_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.loading import Loaded
    from imagegen.rehearsal.faults.fault import Fault, Meter
    from imagegen.rehearsal.stage import Stage


@dataclasses.dataclass
class Injected:
    """The faults that were asked for, and how often each was met."""

    faults: Sequence[Fault]
    provider: str
    place: Place
    _meters: dict[str, Meter] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, names: Sequence[str], loaded: Loaded, target: str) -> Injected:
        """Those with these names; one that this config cannot meet is an error."""
        provider = loaded.specs[target].provider
        faults, place = find_faults(names, provider), _place_of(loaded, target)
        check_place(faults, place, target)
        return cls(faults, provider, place)

    def arrange(self, stage: Stage) -> None:
        """Make them wait for their moment."""
        for fault in self.faults:
            self._meters[fault.name] = fault.arrange[self.provider](stage, self.place)

    def met(self) -> Iterator[tuple[str, int]]:
        for name, meter in self._meters.items():
            yield name, meter()

    def unmet(self) -> list[str]:
        return [name for name, times in self.met() if not times]

    def told(self) -> Iterator[str]:
        """A line for each."""
        for name, times in self.met():
            yield f"fault {name}: met {times} time{'' if times == 1 else 's'}"


def _place_of(loaded: Loaded, target: str) -> Place:
    spec = loaded.specs[target]
    cloud = stand_in(spec.provider)
    home, *others = cloud.regions(spec.settings).values()
    return Place(home, next((region for region in others if region != home), ""), tuple(cloud.sizes(spec.settings)))
