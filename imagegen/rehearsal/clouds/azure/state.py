"""The state of the subscription, which all hosts of Azure share, and the call of an ARM request."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.clouds.azure.cloud import AzureOptions
    from imagegen.rehearsal.clouds.azure.login import Application
    from imagegen.rehearsal.clouds.azure.operations import Operations
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.network.messages import Request


@dataclasses.dataclass(frozen=True)
class Secret:
    """One version of a key vault secret."""

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
    """The state of a virtual machine that is not in its resource."""

    identity: MachineIdentity
    generation: str
    security_type: str
    why_closed: str
    power: str = "running"
    generalized: bool = False


@dataclasses.dataclass
class AzureState:
    """Resources, secrets, machines and running operations. The lock of `Azure` protects all of it."""

    options: AzureOptions
    application: Application
    on_machine: Callable[[MachineIdentity], None]
    operations: Operations
    resources: Resources = dataclasses.field(default_factory=Resources)
    secrets: dict[tuple[str, str], Secret] = dataclasses.field(default_factory=dict)
    # By vault and name. They can be recovered, and their names cannot be used again.
    deleted_secrets: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    machines: dict[str, VmState] = dataclasses.field(default_factory=dict)
    # The regions with a finished replica, by the id of the gallery version.
    replicated: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    # The template of each deployment, by its id.
    templates: dict[str, Resource] = dataclasses.field(default_factory=dict)
    # Deleted vaults by name. They can be recovered, and keep their location and tags.
    deleted_vaults: dict[str, Resource] = dataclasses.field(default_factory=dict)
    addresses_given: int = 0
    private_addresses_given: int = 0

    def group(self, group: GroupId) -> Resource:
        """The resource of a group, which must exist."""
        resource = self.resources.find(str(group))
        if resource is None:
            raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{group.name}' could not be found.")
        return resource

    def secret(self, vault: str, name: str) -> Secret:
        secret = self.secrets.get((vault.lower(), name.lower()))
        if secret is None:
            raise ArmError(404, "SecretNotFound", f"A secret with (name/id) {name} was not found in this key vault.")
        return secret


@dataclasses.dataclass(frozen=True)
class Call:
    """A request to ARM with the names in its path."""

    request: Request
    names: Mapping[str, str]

    @property
    def group(self) -> GroupId:
        return GroupId(self.names["subscription"], self.names["group"])

    def id(self, kind: str, *names: str) -> str:
        """The id of a resource in the group of the request, from the names in its path."""
        return self.group.resource(kind, "/".join(self.names[name] for name in names))
