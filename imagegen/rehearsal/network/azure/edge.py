"""Plays every Azure host: the login, the Resource Manager and the key vaults, over one state."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from imagegen.rehearsal.network.azure import arm, galleries, landscape, vaults
from imagegen.rehearsal.network.azure.errors import ArmError
from imagegen.rehearsal.network.azure.login import HOST as LOGIN_HOST
from imagegen.rehearsal.network.azure.login import Application, Login
from imagegen.rehearsal.network.azure.operations import Operations
from imagegen.rehearsal.network.azure.world import World
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.network.azure.options import AzureOptions
    from imagegen.rehearsal.network.machine import MachineIdentity


class Azure:
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

    def closed_because(self, address: str) -> str | None:
        """Why the WinRM port of an address is shut; "" when it is open, None when no machine has the address."""
        with self._lock:
            for state in self._world.machines.values():
                if state.identity.address == address:
                    stopped = "" if state.power == "running" else f"the machine is {state.power}"
                    return stopped or state.closed_because
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
