"""Plays every Azure host: the login, the Resource Manager and the key vaults, over one state."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure import arm, galleries, landscape, vaults
from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.login import HOST as LOGIN_HOST
from imagegen.rehearsal.clouds.azure.login import Application, Login
from imagegen.rehearsal.clouds.azure.operations import Operations
from imagegen.rehearsal.clouds.azure.options import default_marketplace, default_sizes
from imagegen.rehearsal.clouds.azure.world import World
from imagegen.rehearsal.network.cloud import Cloud
from imagegen.rehearsal.network.machine import OPERATOR_ADDRESS
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.clouds.azure.options import ExistingGroup, GalleryDefinition, Size
    from imagegen.rehearsal.network.machine import MachineIdentity


@dataclasses.dataclass(frozen=True)
class AzureOptions:
    """`looks`: how many looks at a gallery version, or at its operation, see it being replicated.

    `failing` are regions in which replication fails, each with Azure's reason; a version fails as a whole in its own.
    `inside` is the network in which the operator stands: only from there a machine without a public address is reached.
    `refuses_used`: nothing is deleted that something else uses. So it is with Azure; but Packer's plugin deletes all at
    once, and what is refused again after ten seconds: a rehearsal that sat this out would learn nothing.
    `encryption_sets` are the ids of the disk encryption sets, each with its location.
    `vcpus` is the limit of every counter of vCPUs; `usages` are counters of which something else is true: used, limit.
    `denied` are actions that no role allows: permissions lack them, and reading what they read is refused.
    """

    definitions: tuple[GalleryDefinition, ...] = ()
    groups: tuple[ExistingGroup, ...] = ()
    marketplace: Mapping[tuple[str, str], tuple[str, ...]] = dataclasses.field(default_factory=default_marketplace)
    looks: int = 1
    failing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    operator: str = OPERATOR_ADDRESS
    inside: str = ""
    encryption_sets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refuses_used: bool = False
    subscription_state: str = "Enabled"
    absent_regions: frozenset[str] = frozenset()
    sizes: Mapping[str, Size] = dataclasses.field(default_factory=default_sizes)
    vcpus: int = 100
    usages: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    denied: frozenset[str] = frozenset()

    def make_cloud(self, on_machine: Callable[[MachineIdentity], None]) -> Azure:
        """A subscription with all of that in it."""
        return Azure(self, on_machine)


class Azure(Cloud):
    """One tenant, one subscription and one application that may do everything in it."""

    host_patterns = (LOGIN_HOST, arm.HOST, "*.vault.azure.net")

    def __init__(self, options: AzureOptions, on_machine: Callable[[MachineIdentity], None]) -> None:
        self.application = Application()
        self._lock = threading.RLock()
        self._login = Login(self.application)
        self._world = World(options, self.application, on_machine, Operations(self.application.subscription))
        for definition in options.definitions:
            galleries.prepare(self._world, definition)
        for group in options.groups:
            landscape.prepare(self._world, group)
        for set_id, location in options.encryption_sets.items():
            landscape.prepare_encryption_set(self._world, set_id, location)

    @property
    def credentials(self) -> dict[str, str]:
        """The throw-away application, in the names that Packer reads and in those that the SDKs read."""
        known = self.application
        values = {
            "CLIENT_ID": known.client_id,
            "CLIENT_SECRET": known.secret,
            "TENANT_ID": known.tenant,
            "SUBSCRIPTION_ID": known.subscription,
        }
        return {f"{family}_{name}": value for family in ("ARM", "AZURE") for name, value in values.items()}

    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of an address is shut; "" when it is open, None when no machine has the address."""
        with self._lock:
            for state in self._world.machines.values():
                if state.identity.address == address:
                    stopped = "" if state.power == "running" else f"the machine is {state.power}"
                    return stopped or state.why_closed
        return None

    def __call__(self, request: Request) -> Response:
        with self._lock:
            if request.host == LOGIN_HOST:
                return self._login(request)
            audience = self._login.audience(request)
            try:
                if request.host == arm.HOST:
                    return arm.answer(self._world, audience, request)
                if audience != vaults.AUDIENCE:
                    return _challenge(self.application.tenant)
                return vaults.answer(self._world, request)
            except ArmError as error:
                return error.response()


def _challenge(tenant: str) -> Response:
    value = f'Bearer authorization="https://{LOGIN_HOST}/{tenant}", resource="{vaults.AUDIENCE}"'
    return Response(401, b"", (("WWW-Authenticate", value),))
