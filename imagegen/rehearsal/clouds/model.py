"""What a cloud's folder tells the rehearsal of itself, besides its faults and its guest."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from imagegen.documents.yaml import YamlPath
    from imagegen.rehearsal.network.cloud import CloudOptions

SettingsT = TypeVar("SettingsT")


@dataclasses.dataclass(frozen=True)
class UnplayedSetting:
    """A setting that the stand-in cannot play, by its path below the target; `instead` is a value that it can."""

    path: YamlPath
    message: str
    instead: str


@dataclasses.dataclass(frozen=True)
class StandIn(Generic[SettingsT]):
    """Reads the settings of its provider's targets."""

    options: Callable[[SettingsT, Path], CloudOptions]
    """What lies in the cloud before the build, so that what the settings name is there; files go below the folder."""
    regions: Callable[[SettingsT], Mapping[YamlPath, str]]
    """Every region that the settings name, by its path below the target; the build region first."""
    known_regions: Collection[str]
    sizes: Callable[[SettingsT], Sequence[str]]
    """The builder's sizes, in the order in which they are tried."""
    agents: str
    """What the cloud's images run at first boot, in the sentence of what a rehearsal does not check."""
    user_data: str = ""
    """The file of the tree that a machine must be started with; empty where the cloud has another way."""
    unplayed: Callable[[SettingsT], Iterable[UnplayedSetting]] | None = None
    """The settings that cannot be played, other than regions."""
