"""Every fault that `--fault` knows: the common ones in the order in which a build meets them, then a cloud's own."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Final

from imagegen.errors import ConfigError, ExitCode
from imagegen.rehearsal.clouds import cloud_faults, cloud_names
from imagegen.rehearsal.faults import guest
from imagegen.rehearsal.faults.fault import Arrange, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.faults.fault import Place

PASSES: Final = ExitCode.OK


# Those that every cloud may have; its folder says how it arranges them.
_SHARED: Final = (
    Fault("server-error", "The cloud answers the look-up of the base image with 500 twice.", PASSES),
    Fault("html-page", "A web filter answers with its page in the cloud's place.", ExitCode.REFUSED),
    Fault(
        "capacity",
        "The cloud has no capacity left for the first size; the next size is tried. It may take two minutes.",
        PASSES,
    ),
    Fault("quota", "The account's quota has no cores left for any size.", ExitCode.BUILD),
    Fault(
        "wrong-bytes",
        "An artifact's server gives the machine other bytes than the lock was made of.",
        ExitCode.BUILD,
    ),
    Fault("resource-fails", "Windows refuses to set a resource.", ExitCode.BUILD),
    Fault("silent-guest", "The machine does not come back from its first restart.", ExitCode.BUILD),
    Fault(
        "slow-clean-up",
        "What Packer deletes after the build takes its time; imagegen waits, also after Ctrl-C.",
        PASSES,
    ),
    Fault("throttle", "The cloud throttles publishing for a while.", PASSES, needs_away=True),
    Fault(
        "dropped-connection",
        "The cloud begins the copy, and the connection drops before its answer.",
        PASSES,
        needs_away=True,
    ),
    Fault(
        "region-not-enabled",
        "The account may not use a region that the image is published to.",
        ExitCode.REFUSED,
        needs_away=True,
    ),
    Fault(
        "copy-fails",
        "The copy, or the replication to a region, ends as failed.",
        ExitCode.PUBLISH,
        needs_away=True,
    ),
)
# Those of the machine are the same on every cloud.
_OF_THE_GUEST: Final[Mapping[str, Arrange]] = {
    "wrong-bytes": guest.wrong_bytes,
    "resource-fails": guest.resource_fails,
    "silent-guest": guest.silent_guest,
}


def _all_faults() -> Iterator[Fault]:
    clouds = {name: cloud_faults(name) for name in cloud_names()}
    for fault in _SHARED:
        ways = {name: {**_OF_THE_GUEST, **cloud.shared}.get(fault.name) for name, cloud in clouds.items()}
        yield dataclasses.replace(fault, arrange={name: way for name, way in ways.items() if way is not None})
    for cloud in clouds.values():
        yield from cloud.own


FAULTS: Final[Mapping[str, Fault]] = {fault.name: fault for fault in _all_faults()}


def find_faults(names: Sequence[str], target: str) -> tuple[Fault, ...]:
    """The faults with these names, each once; an unknown name and one that the cloud does not have are errors."""
    on_target = sorted(name for name, fault in FAULTS.items() if target in fault.arrange)
    for name in names:
        if name not in FAULTS:
            raise ConfigError(f"--fault {name}: unknown fault", hint=_instead(name, on_target))
        if target not in FAULTS[name].arrange:
            raise ConfigError(f"--fault {name}: {target} has no such fault", hint=f"use one of {', '.join(on_target)}")
    return tuple(FAULTS[name] for name in dict.fromkeys(names))


def check_place(faults: Sequence[Fault], place: Place, target: str) -> None:
    """Faults of publishing need a region to publish to."""
    for fault in faults:
        if fault.needs_away and not place.away:
            raise ConfigError(
                f"--fault {fault.name}: the config publishes to no region other than {place.home}",
                hint=f"name another one: --set targets.{target}.publish.regions=[…]",
            )


def _instead(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"the faults are {', '.join(known)}"
