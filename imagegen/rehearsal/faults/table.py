"""Every fault of `--fault`: the common faults in the order of a build's stages, then those of only one cloud."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError, ExitCode
from imagegen.rehearsal.clouds import cloud_faults, cloud_names
from imagegen.rehearsal.faults import guest
from imagegen.rehearsal.faults.fault import Fault, Injector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.faults.fault import FaultSettings

PASSES: Final = ExitCode.OK


# Each cloud's stand-in has injectors for those that it supports.
_SHARED: Final = (
    Fault("server-error", "The cloud answers the look-up of the base image with 500 twice.", PASSES),
    Fault("html-page", "A web filter answers with its own page in place of the cloud.", ExitCode.REFUSED),
    Fault(
        "capacity",
        "The cloud has no capacity for the first size, and imagegen tries the next one. It can take two minutes.",
        PASSES,
    ),
    Fault("quota", "The account's quota has no cores left for any size.", ExitCode.BUILD),
    Fault(
        "wrong-bytes",
        "The server of an artifact sends bytes to the machine that do not match the lock.",
        ExitCode.BUILD,
    ),
    Fault("resource-fails", "Windows refuses to set a resource.", ExitCode.BUILD),
    Fault("engine-killed", "The engine's process on the machine is killed in the middle of a phase.", ExitCode.BUILD),
    Fault("wrong-report", "The machine reports another plan than that of the tree.", ExitCode.BUILD),
    Fault(
        "silent-guest",
        "The machine does not come back after its first restart. timeouts.restart is one minute.",
        ExitCode.BUILD,
        sets=("timeouts.restart=1",),
    ),
    Fault(
        "slow-clean-up",
        "Packer's clean-up takes ten seconds longer. imagegen waits for it, also after Ctrl-C.",
        PASSES,
    ),
    Fault("throttle", "The cloud throttles publishing for a while.", PASSES, needs_publish_region=True),
    Fault(
        "dropped-connection",
        "The cloud starts the copy, and the connection drops before its answer.",
        PASSES,
        needs_publish_region=True,
    ),
    Fault(
        "region-not-enabled",
        "The account may not use one of the publish regions.",
        ExitCode.REFUSED,
        needs_publish_region=True,
    ),
    Fault(
        "copy-fails",
        "The copy, or the replication to a region, fails.",
        ExitCode.PUBLISH,
        needs_publish_region=True,
    ),
)
_GUEST_INJECTORS: Final[Mapping[str, Injector]] = {
    "wrong-bytes": guest.wrong_bytes,
    "resource-fails": guest.resource_fails,
    "engine-killed": guest.engine_killed,
    "wrong-report": guest.wrong_report,
    "silent-guest": guest.silent_guest,
}


def _all_faults() -> Iterator[Fault]:
    clouds = {name: cloud_faults(name) for name in cloud_names()}
    for fault in _SHARED:
        found = {name: {**_GUEST_INJECTORS, **cloud.shared}.get(fault.name) for name, cloud in clouds.items()}
        yield dataclasses.replace(fault, injectors={name: value for name, value in found.items() if value is not None})
    for cloud in clouds.values():
        yield from cloud.own


FAULTS: Final[Mapping[str, Fault]] = {fault.name: fault for fault in _all_faults()}


def find_faults(names: Sequence[str], provider: str) -> tuple[Fault, ...]:
    """The faults with these names, without duplicates. Rejects unknown names, and faults of only another cloud."""
    supported = sorted(name for name, fault in FAULTS.items() if provider in fault.injectors)
    for name in names:
        if name not in FAULTS:
            raise ConfigError(f'--fault: unknown fault "{name}"', hint=_list_faults(name, supported))
        if provider not in FAULTS[name].injectors:
            raise ConfigError(
                f'--fault: the fault "{name}" is not supported on {provider}', hint=f"supported: {', '.join(supported)}"
            )
    return tuple(FAULTS[name] for name in dict.fromkeys(names))


def settings_of(names: Sequence[str]) -> tuple[str, ...]:
    """The settings of the faults with these names, as `--set` has them. An unknown name has none."""
    return tuple(value for name in dict.fromkeys(names) if name in FAULTS for value in FAULTS[name].sets)


def check_publish_region(faults: Sequence[Fault], settings: FaultSettings, target: str) -> None:
    """Reject faults of publishing if the image is published only in the build region."""
    for fault in faults:
        if fault.needs_publish_region and not settings.publish_region:
            raise ConfigError(
                f"--fault {fault.name} needs a second region, and the config publishes only to {settings.build_region}",
                hint=f"add a region: --set targets.{target}.publish.regions=[…]",
            )


def _list_faults(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (f'did you mean "{close[0]}"? ' if close else "") + f"known: {', '.join(known)}"
