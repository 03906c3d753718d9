"""The model of a cloud's stand-in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from imagegen.config.yaml import YamlPath
    from imagegen.rehearsal.boot.model import Clock, Instance, Platform
    from imagegen.rehearsal.network.cloud import CloudOptions

SettingsT = TypeVar("SettingsT")


@dataclasses.dataclass(frozen=True)
class UnsupportedSetting:
    """A setting that the stand-in does not support, by its path below the target, and a value that it supports."""

    path: YamlPath
    message: str
    supported_value: str


@dataclasses.dataclass(frozen=True)
class StandIn(Generic[SettingsT]):
    """How the stand-in reads the settings of a target."""

    options: Callable[[SettingsT, Path], CloudOptions]
    """The initial state of the cloud, with every resource that the settings name. Its files are in the folder."""
    regions: Callable[[SettingsT], Mapping[YamlPath, str]]
    """Every region in the settings, by its path below the target; the build region first."""
    known_regions: Collection[str]
    sizes: Callable[[SettingsT], Sequence[str]]
    """The builder's sizes, in the order in which they are tried."""
    make_instance: Callable[[bytes], Instance]
    """An ordinary machine of this cloud, which its creator gave this user data."""
    make_platform: Callable[[Instance, Clock], Platform]
    """What a machine finds around it while it boots: the cloud's addresses, DHCP options and drives."""
    agents: str
    """The agents of the cloud's images, for the list of what a rehearsal does not check."""
    user_data: str = ""
    """The file of the tree with which a machine must be started; empty if the cloud has another way."""
    account_options: Callable[[], CloudOptions] | None = None
    """An account of this cloud beside the target's cloud, for artifacts in its storage."""
    find_unsupported: Callable[[SettingsT], Iterable[UnsupportedSetting]] | None = None
    """Finds unsupported settings, other than regions."""
