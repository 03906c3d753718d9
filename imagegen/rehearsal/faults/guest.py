"""Faults of the build machine, which are the same on every cloud."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import KilledError, RefusedByWindows

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.faults.fault import FaultSettings, TriggerCount
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.network.messages import Request, Response
    from imagegen.rehearsal.sandbox import Sandbox
    from imagegen.rehearsal.winrm.server import WinRMServer

# Part of the id of every service resource. Each node image has services.
_SERVICE = "/service:"
_AWAY_S = 5.0


def wrong_bytes(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Changes one artifact after the machine has started: the lock was made with the correct bytes."""
    url = min(sandbox.artifacts)
    parts = urllib.parse.urlsplit(url)

    def spoil(_: Request, own: Response) -> Response | None:
        if own.status not in (200, 206) or not own.body:
            return None
        return dataclasses.replace(own, body=own.body[:-1] + bytes([own.body[-1] ^ 1]))

    injection = sandbox.network.inject(
        parts.netloc, parts.path, mutate=spoil, when=lambda _: bool(sandbox.network.machines), times=None
    )
    return lambda: injection.triggered


def resource_fails(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Fails every service resource, with the message of Windows for error 1072."""

    def refuse(_resource: str, _server: WinRMServer) -> None:
        raise RefusedByWindows("The specified service has been marked for deletion. (1072)")

    return _before_services(sandbox, refuse)


def engine_killed(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Ends the engine's process when it is about to set a service."""

    def kill(resource: str, _server: WinRMServer) -> None:
        raise KilledError(resource)

    return _before_services(sandbox, kill)


def winrm_away(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Loses the connections of the machine once, when it is about to set a service, and accepts none for a while."""
    return _before_services(sandbox, lambda _resource, server: server.disconnect(_AWAY_S), once=True)


def _before_services(
    sandbox: Sandbox, act: Callable[[str, WinRMServer], object], *, once: bool = False
) -> TriggerCount:
    """Call `act` with each service resource that is about to be set, or only with the first one."""
    triggered: list[str] = []

    def hook(_identity: MachineIdentity, machine: Machine, server: WinRMServer) -> None:
        def before_set(resource: str) -> None:
            if _SERVICE in resource and not (once and triggered):
                triggered.append(resource)
                act(resource, server)

        machine.before_set = before_set

    sandbox.machine_hooks.append(hook)
    return lambda: len(triggered)


def silent_guest(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Makes the machine unreachable from its first restart on."""
    silenced: list[str] = []

    def hook(identity: MachineIdentity, machine: Machine, _server: WinRMServer) -> None:
        def disconnect() -> None:
            silenced.append(identity.address)
            sandbox.network.silence(identity.address)

        machine.before_restart = disconnect

    sandbox.machine_hooks.append(hook)
    return lambda: len(silenced)


def wrong_report(sandbox: Sandbox, _: FaultSettings) -> TriggerCount:
    """Makes the machine report another plan than the one of the tree."""
    spoilt: list[str] = []

    def hook(identity: MachineIdentity, machine: Machine, _server: WinRMServer) -> None:
        def spoil(report: dict[str, object]) -> None:
            spoilt.append(identity.address)
            report["plan_sha256"] = "0" * 64

        machine.before_report = spoil

    sandbox.machine_hooks.append(hook)
    return lambda: len(spoilt)
