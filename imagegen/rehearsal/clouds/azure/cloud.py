"""Answers for every host of Azure: sign-in, Resource Manager (ARM) and key vaults, with one common state."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import arm, existing_resources, galleries, vaults
from imagegen.rehearsal.clouds.azure.blobs import Blobs
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.login import HOST as LOGIN_HOST
from imagegen.rehearsal.clouds.azure.login import Application, Login
from imagegen.rehearsal.clouds.azure.operations import Operations
from imagegen.rehearsal.clouds.azure.options import default_marketplace, default_sizes
from imagegen.rehearsal.clouds.azure.state import AzureState
from imagegen.rehearsal.network.cloud import Cloud
from imagegen.rehearsal.network.machine import OPERATOR_ADDRESS
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.clouds.azure.options import ExistingGroup, GalleryDefinition, Size
    from imagegen.rehearsal.network.machine import MachineIdentity


@dataclasses.dataclass(frozen=True)
class AzureOptions:
    """The initial state and the behaviour of the subscription.

    A gallery version is replicating for `replication_polls` requests for it or for its operation.
    `failing_regions` are regions in which replication fails, with Azure's reason. In its own region, a version fails.
    `operator_network` is the network of Packer's machine: only from there, private addresses can be reached.
    With `rejects_used`, a resource that another one uses cannot be deleted, as in Azure. It is off by default because
    Packer's plugin deletes everything at once and retries after ten seconds, which only makes a rehearsal slower.
    `encryption_sets` are the ids of the disk encryption sets, with their locations.
    `vcpu_limit` is the limit of every vCPU counter, and `usages` has used and limit of counters that differ from it.
    `denied_actions` are actions that no role allows. Requests that need them are rejected.
    """

    definitions: tuple[GalleryDefinition, ...] = ()
    groups: tuple[ExistingGroup, ...] = ()
    marketplace: Mapping[tuple[str, str], tuple[str, ...]] = dataclasses.field(default_factory=default_marketplace)
    replication_polls: int = 1
    failing_regions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    operator: str = OPERATOR_ADDRESS
    operator_network: str = ""
    encryption_sets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rejects_used: bool = False
    subscription_state: str = "Enabled"
    absent_regions: frozenset[str] = frozenset()
    sizes: Mapping[str, Size] = dataclasses.field(default_factory=default_sizes)
    vcpu_limit: int = 100
    usages: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    denied_actions: frozenset[str] = frozenset()

    def make_cloud(self, on_machine: Callable[[MachineIdentity], None]) -> Azure:
        """Make a subscription with this state."""
        return Azure(self, on_machine)


class Azure(Cloud):
    """One tenant, one subscription, and one application with all permissions."""

    host_patterns = (LOGIN_HOST, arm.HOST, "*.vault.azure.net")

    def __init__(self, options: AzureOptions, on_machine: Callable[[MachineIdentity], None]) -> None:
        self.application = Application()
        self._lock = threading.RLock()
        self._login = Login(self.application)
        self._blobs = Blobs(self.application)
        self._state = AzureState(options, self.application, on_machine, Operations(self.application.subscription))
        for definition in options.definitions:
            galleries.create_definition(self._state, definition)
        for group in options.groups:
            existing_resources.create_group(self._state, group)
        for set_id, location in options.encryption_sets.items():
            existing_resources.create_encryption_set(self._state, set_id, location)

    @property
    def credentials(self) -> dict[str, str]:
        """The temporary application, in the variables of Packer and in those of the SDKs."""
        application = self.application
        values = {
            "CLIENT_ID": application.client_id,
            "CLIENT_SECRET": application.secret,
            "TENANT_ID": application.tenant,
            "SUBSCRIPTION_ID": application.subscription,
        }
        return {f"{family}_{name}": value for family in ("ARM", "AZURE") for name, value in values.items()}

    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of this address is closed: "" if it is open, None if no machine has the address."""
        with self._lock:
            for vm in self._state.machines.values():
                if vm.identity.address == address:
                    return vm.why_closed if vm.power == "running" else f"the machine is {vm.power}"
        return None

    def admit(self, request: Request) -> Response | None:
        """Refuse a request for a blob without a signature of this subscription's application."""
        with self._lock:
            return self._blobs.answer(request, self._login.audience(request))

    def __call__(self, request: Request) -> Response:
        with self._lock:
            if request.host == LOGIN_HOST:
                return self._login(request)
            audience = self._login.audience(request)
            try:
                if request.host == arm.HOST:
                    return arm.answer(self._state, audience, request)
                if audience != vaults.AUDIENCE:
                    return _challenge(self.application.tenant)
                return vaults.answer(self._state, request)
            except ArmError as error:
                return error.response()


def _challenge(tenant: str) -> Response:
    value = f'Bearer authorization="https://{LOGIN_HOST}/{tenant}", resource="{vaults.AUDIENCE}"'
    return Response(401, b"", (("WWW-Authenticate", value),))
