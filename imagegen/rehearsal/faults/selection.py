"""The faults that one rehearsal injects: chosen by name, injected into its sandbox, and counted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.faults.fault import FaultSettings
from imagegen.rehearsal.faults.table import check_publish_region, find_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.plan.loading import Loaded
    from imagegen.rehearsal.faults.fault import Fault, TriggerCount
    from imagegen.rehearsal.sandbox import Sandbox


@dataclasses.dataclass
class SelectedFaults:
    """The faults of `--fault`, and how often each was triggered."""

    faults: Sequence[Fault]
    provider: str
    settings: FaultSettings
    _counts: dict[str, TriggerCount] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_names(cls, names: Sequence[str], loaded: Loaded, target: str) -> SelectedFaults:
        """The faults with these names. Raises an error if a fault cannot be triggered with this config."""
        provider = loaded.specs[target].provider
        faults, settings = find_faults(names, provider), _fault_settings(loaded, target)
        check_publish_region(faults, settings, target)
        return cls(faults, provider, settings)

    def inject(self, sandbox: Sandbox) -> None:
        """Prepare the sandbox to trigger every fault."""
        for fault in self.faults:
            self._counts[fault.name] = fault.injectors[self.provider](sandbox, self.settings)

    def trigger_counts(self) -> Iterator[tuple[str, int]]:
        for name, count in self._counts.items():
            yield name, count()

    def untriggered(self) -> list[str]:
        return [name for name, times in self.trigger_counts() if not times]

    def report_lines(self) -> Iterator[str]:
        """One line for each fault."""
        for name, times in self.trigger_counts():
            yield f"fault {name}: triggered {times} time{'' if times == 1 else 's'}"


def _fault_settings(loaded: Loaded, target: str) -> FaultSettings:
    spec = loaded.specs[target]
    cloud = stand_in(spec.provider)
    home, *others = cloud.regions(spec.settings).values()
    return FaultSettings(
        home, next((region for region in others if region != home), ""), tuple(cloud.sizes(spec.settings))
    )
