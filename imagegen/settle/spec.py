"""The settled spec of one target, which steps, rules, providers and explain read. Touches nothing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, Generic, Literal

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings

S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)
Kind = Literal["default", "catalogue", "file", "set"]

DEFAULT: Final[Kind] = "default"
CATALOGUE: Final[Kind] = "catalogue"
FILE: Final[Kind] = "file"
SET: Final[Kind] = "set"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a value comes from. `where` is `file:line`, the option of the command line, or a table and row of the
    catalogue, whose `source` was read on the day `read`."""

    kind: Kind
    where: str = ""
    source: str = ""
    read: str = ""


@dataclasses.dataclass(frozen=True)
class CatalogueValue:
    """A value of the catalogue, for a key that the config leaves out or for a fact that no key states."""

    path: YamlPath
    value: Any
    origin: Origin
    description: str = ""

    @property
    def shown(self) -> object:
        """As people read it."""
        if isinstance(self.value, tuple):
            return [str(record) for record in self.value]
        return str(self.value) if isinstance(self.value, AgentConfig) else self.value


@dataclasses.dataclass(frozen=True)
class HotFix:
    """A registry value that this Windows release needs."""

    key: str
    name: str
    data: int
    reason: str

    def __str__(self) -> str:
        return f"{self.key}\\{self.name} = {self.data}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """The configuration file of a cloud's own agent, with which it leaves user data to cloudbase-init."""

    path: str
    config: str

    def __str__(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the catalogue knows of the chosen versions, and no key of the config can state. None: it does not know."""

    windows_build: int | None
    hot_fixes: tuple[HotFix, ...]
    crictl: str | None
    containerd_config_version: int | None
    containerd_cni_bin_dirs: bool | None
    cloudbase_init_product: str
    first_boot_agent: AgentConfig | None


@dataclasses.dataclass(frozen=True)
class Spec(Generic[S]):
    """Everything that holds for one target.

    `config` has the catalogue's value at every key that the operator left out and the catalogue knows. Lists that a
    config states for each cloud are here those of this target's cloud.
    """

    target: str
    provider: str
    config: ImageConfig
    settings: S
    facts: Facts
    plugins: tuple[str, ...]
    """cloudbase-init's plugins, in their order."""
    metadata_services: tuple[str, ...]
    offered_image: Mapping[str, str]
    """How the cloud names its own base image of this Windows; empty where it has none."""
    document: Document
    catalogue: Mapping[YamlPath, CatalogueValue]
    """The catalogue's values by their path, also those that the config overrides."""

    def origin(self, path: YamlPath) -> Origin:
        """Where the value at a path comes from."""
        if path in self.document.lines:
            place = self.document.place(path)
            return Origin(FILE if place.line else SET, str(place))
        known = self.catalogue.get(path)
        return known.origin if known is not None and known.value is not None else Origin(DEFAULT)
