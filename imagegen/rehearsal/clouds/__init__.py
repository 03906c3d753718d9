"""The stand-ins of the clouds: one folder each, by the provider's name.

A folder's parts are modules with the same names in all, imported where they are used: `guest` and `faults` are light,
`stand_in` may need the extra of a rehearsal. A new stand-in is its folder, and nothing else names it.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from imagegen.errors import RefusedError
from imagegen.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from imagegen.rehearsal.clouds.model import StandIn
    from imagegen.rehearsal.faults.fault import CloudFaults
    from imagegen.rehearsal.machine.agents import Agents


def cloud_names() -> tuple[str, ...]:
    """The providers that can be rehearsed."""
    return tuple(name for name in PROVIDERS if importlib.util.find_spec(f"{__name__}.{name}") is not None)


def stand_in(provider: str) -> StandIn[object]:
    """What plays the cloud."""
    found: StandIn[object] = _part(provider, "stand_in").STAND_IN
    return found


def cloud_faults(provider: str) -> CloudFaults:
    """What can be made to go wrong in the cloud."""
    found: CloudFaults = _part(provider, "faults").FAULTS
    return found


def guest_agents(provider: str) -> Agents:
    """What the cloud's images of Windows have beside Windows."""
    found: Agents = _part(provider, "guest").AGENTS
    return found


def import_variables() -> dict[str, str | None]:
    """What must stand in this process' environment before a stand-in is imported; None is what must not."""
    variables: dict[str, str | None] = {}
    for name in cloud_names():
        found: Mapping[str, str | None] = importlib.import_module(f"{__name__}.{name}").IMPORT_VARIABLES
        variables |= found
    return variables


def _part(provider: str, name: str) -> ModuleType:
    if provider not in cloud_names():
        raise RefusedError(f"{provider} has no stand-in: it cannot be rehearsed", hint="leave --rehearse out")
    return importlib.import_module(f"{__name__}.{provider}.{name}")
