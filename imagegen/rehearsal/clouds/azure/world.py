"""The one state behind every Azure host of a rehearsal, and one call upon it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.clouds.azure.edge import AzureOptions
    from imagegen.rehearsal.clouds.azure.login import Application
    from imagegen.rehearsal.clouds.azure.operations import Operations
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.network.messages import Request


@dataclasses.dataclass(frozen=True)
class Secret:
    """One version of a key vault secret; its URL with the version is how others name it."""

    vault: str
    name: str
    version: str
    value: str = dataclasses.field(repr=False)

    @property
    def url(self) -> str:
        return f"https://{self.vault.lower()}.vault.azure.net/secrets/{self.name}"

    @property
    def versioned_url(self) -> str:
        return f"{self.url}/{self.version}"


@dataclasses.dataclass
class VmState:
    """What is true of a virtual machine and not in its resource."""

    identity: MachineIdentity
    generation: str
    security_type: str
    why_closed: str
    power: str = "running"
    generalized: bool = False


@dataclasses.dataclass
class World:
    """Resources, secrets, machines and running operations; the edge's lock guards it all."""

    options: AzureOptions
    application: Application
    on_machine: Callable[[MachineIdentity], None]
    operations: Operations
    resources: Resources = dataclasses.field(default_factory=Resources)
    secrets: dict[tuple[str, str], Secret] = dataclasses.field(default_factory=dict)
    # By vault and name: recoverable, and in the way of a secret of the same name.
    deleted_secrets: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    machines: dict[str, VmState] = dataclasses.field(default_factory=dict)
    # Where each gallery version has arrived, by its id.
    replicated: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    # What each deployment was made of, by its id.
    templates: dict[str, Resource] = dataclasses.field(default_factory=dict)
    # Vaults that can still be recovered, by name: a deleted one keeps its name, its place and its tags.
    deleted_vaults: dict[str, Resource] = dataclasses.field(default_factory=dict)
    addresses_given: int = 0
    private_addresses_given: int = 0

    def group(self, group: GroupId) -> Resource:
        """The resource group, which must exist."""
        found = self.resources.find(str(group))
        if found is None:
            raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{group.name}' could not be found.")
        return found

    def secret(self, vault: str, name: str) -> Secret:
        found = self.secrets.get((vault.lower(), name.lower()))
        if found is None:
            raise ArmError(404, "SecretNotFound", f"A secret with (name/id) {name} was not found in this key vault.")
        return found


@dataclasses.dataclass(frozen=True)
class Call:
    """A request to the Resource Manager with the names from its path."""

    request: Request
    names: Mapping[str, str]

    @property
    def group(self) -> GroupId:
        return GroupId(self.names["subscription"], self.names["group"])

    def id(self, kind: str, *names: str) -> str:
        """The id of a resource in the call's group, named by parts of the path."""
        return self.group.resource(kind, "/".join(self.names[name] for name in names))
