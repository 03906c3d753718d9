"""The values of the catalogue that a spec is made of, each with its origin."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, Literal

from imagegen.catalog.facts import sources
from imagegen.settle.facts import (
    AgentConfig,
    CniArchive,
    CredentialProviderApi,
    HyperV,
    Ports,
    RestrictedAddress,
    Updates,
    Wins,
)

if TYPE_CHECKING:
    from imagegen.config.yaml import YamlPath

Kind = Literal["default", "catalogue", "file", "set"]
FACTS = "facts"
_SHOWN_AS_TEXT: Final = (
    *(AgentConfig, CniArchive, RestrictedAddress, Ports, CredentialProviderApi, HyperV, Updates, Wins),
)


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

    @property
    def shown(self) -> object:
        """The value as `imagegen explain` shows it."""
        if isinstance(self.value, tuple):
            return [str(record) for record in self.value]
        return str(self.value) if isinstance(self.value, _SHOWN_AS_TEXT) else self.value


def fact(name: str, value: object, origin: Origin) -> CatalogueValue:
    return CatalogueValue((FACTS, name), value, origin)


def find_origin(name: str, row: str, source: str | None) -> Origin:
    """The origin of a value in a table's row, with the source of the row."""
    said = sources(name)[source] if source else {"from": "", "read": ""}
    return Origin("catalogue", f"{name} {row}", said["from"], said["read"])
