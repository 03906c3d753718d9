"""What a fault is: a name, what happens, how the build then ends, and how it is arranged on each cloud."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.errors import ExitCode
    from imagegen.rehearsal.stage import Stage


@dataclasses.dataclass(frozen=True)
class Place:
    """What a fault needs to know of the config."""

    home: str
    """The build region."""
    away: str
    """The first other region that the image is published to; empty where there is none."""
    sizes: tuple[str, ...]


# How often the fault happened so far.
Meter = Callable[[], int]
Arrange = Callable[["Stage", Place], Meter]


@dataclasses.dataclass(frozen=True)
class Fault:
    """`arrange` has one entry for each cloud that the fault exists on."""

    name: str
    what: str
    exit_code: ExitCode
    """How a build of the shipped configs ends."""
    arrange: Mapping[str, Arrange] = dataclasses.field(default_factory=dict)
    needs_away: bool = False

    @property
    def clouds(self) -> tuple[str, ...]:
        return tuple(self.arrange)


@dataclasses.dataclass(frozen=True)
class CloudFaults:
    """What a cloud's folder has of faults: how it arranges those that clouds share, by name, and those of its own."""

    shared: Mapping[str, Arrange]
    own: tuple[Fault, ...] = ()
