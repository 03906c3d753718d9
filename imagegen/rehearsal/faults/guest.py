"""Faults of the machine that is built on; they are the same on every cloud."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from imagegen.rehearsal.faults.fault import Meter, Place
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.network.messages import Request, Response
    from imagegen.rehearsal.stage import Stage
    from imagegen.rehearsal.winrm.server import WinRMServer

# In the name of every service's resource; each node has some.
_SERVICE = "/service:"


def wrong_bytes(stage: Stage, _: Place) -> Meter:
    """One artifact, once a machine is there to fetch it: the lock saw the right ones."""
    url = min(stage.supplies)
    parts = urllib.parse.urlsplit(url)

    def spoil(_: Request, own: Response) -> Response | None:
        if own.status not in (200, 206) or not own.body:
            return None
        return dataclasses.replace(own, body=own.body[:-1] + bytes([own.body[-1] ^ 1]))

    injection = stage.network.inject(
        parts.netloc, parts.path, mutate=spoil, when=lambda _: bool(stage.network.machines), times=None
    )
    return lambda: injection.met


def resource_fails(stage: Stage, _: Place) -> Meter:
    """The first service that is set; with Windows' own words for error 1072."""
    refused: list[str] = []

    def arrange(_identity: MachineIdentity, machine: Machine, _server: WinRMServer) -> None:
        def refuse(resource: str) -> None:
            if _SERVICE in resource:
                refused.append(resource)
                raise RefusedByWindows("The specified service has been marked for deletion. (1072)")

        machine.before_set = refuse

    stage.disturbances.append(arrange)
    return lambda: len(refused)


def silent_guest(stage: Stage, _: Place) -> Meter:
    """From its first restart on, nothing listens on the machine any more."""
    silenced: list[str] = []

    def arrange(identity: MachineIdentity, machine: Machine, _server: WinRMServer) -> None:
        def vanish() -> None:
            silenced.append(identity.address)
            stage.network.silence(identity.address)

        machine.before_restart = vanish

    stage.disturbances.append(arrange)
    return lambda: len(silenced)
