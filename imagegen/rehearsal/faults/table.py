"""Every fault that `--fault` knows, in the order in which a build meets them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from imagegen.errors import ConfigError, ExitCode
from imagegen.rehearsal.faults import aws, azure, guest
from imagegen.rehearsal.faults.fault import Arrange, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.faults.fault import Place

PASSES: Final = ExitCode.OK


def _both(on_aws: Arrange, on_azure: Arrange) -> dict[str, Arrange]:
    return {"aws": on_aws, "azure": on_azure}


_ALL: Final = (
    Fault(
        "server-error",
        "The cloud answers the look-up of the base image with 500 twice.",
        PASSES,
        _both(aws.server_error, azure.server_error),
    ),
    Fault(
        "html-page",
        "A web filter answers with its page in the cloud's place.",
        ExitCode.REFUSED,
        _both(aws.html_page, azure.html_page),
    ),
    Fault(
        "capacity",
        "The cloud has no capacity left for the first size; the next size is tried. On AWS it takes two minutes.",
        PASSES,
        _both(aws.capacity, azure.capacity),
    ),
    Fault(
        "quota", "The account's quota has no cores left for any size.", ExitCode.BUILD, _both(aws.quota, azure.quota)
    ),
    Fault(
        "wrong-bytes",
        "An artifact's server gives the machine other bytes than the lock was made of.",
        ExitCode.BUILD,
        _both(guest.wrong_bytes, guest.wrong_bytes),
    ),
    Fault(
        "resource-fails",
        "Windows refuses to set a resource.",
        ExitCode.BUILD,
        _both(guest.resource_fails, guest.resource_fails),
    ),
    Fault(
        "silent-guest",
        "The machine does not come back from its first restart.",
        ExitCode.BUILD,
        _both(guest.silent_guest, guest.silent_guest),
    ),
    Fault(
        "slow-clean-up",
        "What Packer deletes after the build takes its time; imagegen waits, also after Ctrl-C.",
        PASSES,
        _both(aws.slow_clean_up, azure.slow_clean_up),
    ),
    Fault(
        "throttle",
        "The cloud throttles publishing for a while.",
        PASSES,
        _both(aws.throttle, azure.throttle),
        needs_away=True,
    ),
    Fault(
        "dropped-connection",
        "The cloud begins the copy, and the connection drops before its answer.",
        PASSES,
        _both(aws.lost_answer, azure.lost_answer),
        needs_away=True,
    ),
    Fault(
        "same-client-token",
        "EC2 answers the copy's client token with a copy that was deregistered. It takes two minutes.",
        PASSES,
        {"aws": aws.same_token},
        needs_away=True,
    ),
    Fault(
        "region-not-enabled",
        "The account may not use a region that the image is published to.",
        ExitCode.REFUSED,
        _both(aws.region_not_enabled, azure.region_not_enabled),
        needs_away=True,
    ),
    Fault(
        "copy-fails",
        "The copy, or the replication to a region, ends as failed.",
        ExitCode.PUBLISH,
        _both(aws.copy_fails, azure.copy_fails),
        needs_away=True,
    ),
)
FAULTS: Final[Mapping[str, Fault]] = {fault.name: fault for fault in _ALL}


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
