"""The model of a fault: its name, what happens, how the build then ends, and how each cloud's stand-in injects it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.base.errors import ExitCode
    from imagegen.rehearsal.sandbox import Sandbox


@dataclasses.dataclass(frozen=True)
class FaultSettings:
    """The settings of the target that faults depend on."""

    build_region: str
    publish_region: str
    """The first other region that the image is published to; empty if there is none."""
    sizes: tuple[str, ...]


# Returns how often the fault was triggered so far.
TriggerCount = Callable[[], int]
Injector = Callable[["Sandbox", FaultSettings], TriggerCount]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of `--fault`. `injectors` has one entry for each provider whose stand-in supports the fault."""

    name: str
    description: str
    exit_code: ExitCode
    """The exit code of a build of the shipped configs."""
    injectors: Mapping[str, Injector] = dataclasses.field(default_factory=dict)
    needs_publish_region: bool = False
    sets: tuple[str, ...] = ()
    """Settings with which the build ends soon, as `--set` has them. Those of the user come after them."""

    @property
    def clouds(self) -> tuple[str, ...]:
        return tuple(self.injectors)


@dataclasses.dataclass(frozen=True)
class CloudFaults:
    """The faults of a cloud's stand-in: injectors of the common faults, by name, and faults of only this cloud."""

    shared: Mapping[str, Injector]
    own: tuple[Fault, ...] = ()
