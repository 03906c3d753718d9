"""The stand-ins of the clouds: one folder for each, with the name of the provider, which registers it.

Each folder has the modules `guest`, `faults` and `stand_in`. They are imported when they are used: `stand_in` may need
the optional dependencies of a rehearsal.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from imagegen.base.errors import RefusedError
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
    """The stand-in of the provider's cloud."""
    found: StandIn[object] = _import_part(provider, "stand_in").STAND_IN
    return found


def cloud_faults(provider: str) -> CloudFaults:
    """The faults that the stand-in can inject."""
    found: CloudFaults = _import_part(provider, "faults").FAULTS
    return found


def guest_agents(provider: str) -> Agents:
    """The agents in the cloud's Windows images."""
    found: Agents = _import_part(provider, "guest").AGENTS
    return found


def import_variables() -> dict[str, str | None]:
    """The environment variables that must be set before a stand-in is imported. None means that it must not be set."""
    variables: dict[str, str | None] = {}
    for name in cloud_names():
        found: Mapping[str, str | None] = importlib.import_module(f"{__name__}.{name}").IMPORT_VARIABLES
        variables |= found
    return variables


def _import_part(provider: str, name: str) -> ModuleType:
    if provider not in cloud_names():
        raise RefusedError(f"{provider} cannot be rehearsed: it has no stand-in", hint="leave --rehearse out")
    return importlib.import_module(f"{__name__}.{provider}.{name}")
