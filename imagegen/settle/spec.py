"""The settled spec of one target. Steps, rules, providers and explain read it. Pure data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings

S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)
Kind = Literal["default", "catalogue", "file", "set"]


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a value comes from. `where` is `file:line`, the command-line option, or a table and row of the catalogue.
    `source` is what the row was taken from, and `read` is the day."""

    kind: Kind
    where: str = ""
    source: str = ""
    read: str = ""


@dataclasses.dataclass(frozen=True)
class CatalogueValue:
    """A value of the catalogue: for a key that the config leaves out, or for a fact that has no key."""

    path: YamlPath
    value: Any
    origin: Origin
    description: str = ""

    @property
    def shown(self) -> object:
        """The value as `imagegen explain` shows it."""
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
    """The configuration file of a cloud's own agent. With it, the agent does not run the user data: cloudbase-init
    does."""

    path: str
    config: str

    def __str__(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the catalogue knows about the chosen versions and no key can set. None: the catalogue does not know."""

    windows_build: int | None
    hot_fixes: tuple[HotFix, ...]
    crictl: str | None
    kubeadm_joins_as_system: bool
    kubelet_log_rotates: bool
    containerd_config_version: int | None
    containerd_cni_bin_dirs: bool | None
    cloudbase_init_product: str
    first_boot_agent: AgentConfig | None


@dataclasses.dataclass(frozen=True)
class Spec(Generic[S]):
    """All settled values of one target.

    If the operator leaves out a key, `config` has the catalogue's value, if there is one. A config can have lists for
    each cloud: here they are the lists of this target's cloud.
    """

    target: str
    provider: str
    config: ImageConfig
    settings: S
    facts: Facts
    plugins: tuple[str, ...]
    """cloudbase-init's plugins, in the order in which they run."""
    metadata_services: tuple[str, ...]
    offered_image: Mapping[str, str]
    """The name of the cloud's own base image of this Windows release; empty if there is none."""
    document: Document
    catalogue: Mapping[YamlPath, CatalogueValue]
    """The catalogue's values by path, including those that the config overrides."""

    def origin(self, path: YamlPath) -> Origin:
        """Where the value at a path comes from."""
        if path in self.document.lines:
            place = self.document.place(path)
            return Origin("file" if place.line else "set", str(place))
        known = self.catalogue.get(path)
        return known.origin if known is not None and known.value is not None else Origin("default")
