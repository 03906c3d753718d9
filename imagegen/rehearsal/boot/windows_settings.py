"""Looks at the settings of Windows on a booted model machine: what the config and the catalogue want, and what is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.rehearsal.machine.commands import read_power_plan
from imagegen.rehearsal.machine.host_name import read_dns_suffix
from imagegen.rehearsal.machine.stock import TIME_SERVICE
from imagegen.rehearsal.machine.time_zone import read_time_zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.facts import ExcludedPorts
    from imagegen.settle.spec import Spec

# The programs of a node that open the most files, by the name of their folder.
_PROGRAMS: Final = (
    ("kubernetes", "kubelet.exe"),
    ("containerd", "containerd.exe"),
    ("containerd", "containerd-shim-runhcs-v1.exe"),
)
_PROGRAMS_WITH_DOCKER: Final = (("kubernetes", "kubelet.exe"), ("docker", "dockerd.exe"))


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the config and the catalogue want of Windows. Empty where they want nothing."""

    time_zone: str = ""
    dns_suffix: str = ""
    dynamic_ports: int = 0
    """How many ports programs that ask for any port must have at least."""
    excluded_ports: tuple[ExcludedPorts, ...] = ()
    unscanned: tuple[tuple[str, str], ...] = _PROGRAMS
    """The programs whose file access Defender must not scan, by the names of their folders."""


NOTHING_WANTED: Final = Wanted()


def describe_wanted(spec: Spec) -> Wanted:
    ports = spec.facts.dynamic_ports
    excluded = (*spec.facts.excluded_ports, *(spec.facts.excluded_ports_on_cloud or ()))
    taken = {rows.protocol: 0 for rows in excluded}
    for rows in excluded:
        taken[rows.protocol] += rows.count
    return Wanted(
        spec.config.windows.time_zone or "",
        spec.config.host_names.dns_suffix or "",
        ports.count - max(taken.values()),
        excluded,
        _PROGRAMS_WITH_DOCKER if spec.config.runtime.docker else _PROGRAMS,
    )


def look_at_windows(machine: Machine, wanted: Wanted, layout: Mapping[str, str]) -> facts.Windows:
    """`layout` has the image's folders by name."""
    return facts.Windows(
        time_zone=read_time_zone(machine.registry),
        wanted_time_zone=wanted.time_zone,
        dns_suffix=read_dns_suffix(machine.registry),
        wanted_dns_suffix=wanted.dns_suffix,
        power_plan=read_power_plan(machine),
        keeps_time=machine.services.is_running(TIME_SERVICE),
        dynamic_ports={protocol: len(machine.ports.given(protocol)) for protocol in ("tcp", "udp")},
        wanted_dynamic_ports=wanted.dynamic_ports,
        given_ports=tuple(
            str(one)
            for one in wanted.excluded_ports
            if not machine.ports.given(one.protocol).isdisjoint(range(one.start, one.end + 1))
        ),
        scanned=tuple(_find_scanned(machine, wanted, layout)),
    )


def _find_scanned(machine: Machine, wanted: Wanted, layout: Mapping[str, str]) -> Iterator[str]:
    """The programs whose file access Defender scans."""
    if not machine.defender.answers:
        return
    excluded = {process.lower() for process in machine.defender.processes}
    for folder, name in wanted.unscanned:
        path = rf"{layout[folder]}\{name}"
        if path.lower() not in excluded:
            yield path
