"""Looks at wins on a booted model machine: what the config wants, and what is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.config.yaml import parse_yaml
from imagegen.rehearsal.machine.programs import check_can_run, split_command
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.wins import find_pipe, find_successor, list_programs, read_wins_config
from imagegen.rehearsal.node.facts import read_version

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec

_SERVICE: Final = "rancher-wins"
# The wins in the pods of sig-windows-tools names no pipe, and connects to its default.
_PIPE: Final = r"\\.\pipe\rancher_wins"


@dataclasses.dataclass(frozen=True)
class WantedWins:
    """What the config wants of wins."""

    programs: tuple[str, ...]
    """The programs that pods may start, by their paths."""


def describe_wins(spec: Spec) -> WantedWins | None:
    """None if the config has no wins. The programs of a policy of the operator's own are read from its file."""
    wins, known = spec.config.wins, spec.facts.wins
    if wins is None or known is None:
        return None
    if own := spec.own_files.get("wins.policy"):
        listed = parse_yaml(own.data, own.name).data[known.white_list]["processPaths"]
        return WantedWins(tuple(listed))
    folder = spec.config.kubernetes.install_path
    return WantedWins(tuple(rf"{folder}\{program}" for program in known.programs))


def look_at_wins(machine: Machine, wanted: WantedWins | None) -> facts.Wins | None:
    if wanted is None:
        return None
    command, failure = machine.services.command(_SERVICE), ""
    is_running = machine.services.is_running(_SERVICE)
    try:
        check_can_run(machine.files, machine.features, command)
    except RefusedByWindows as refusal:
        failure = str(refusal) if command else "its service is not in the image"
    pipe, programs, successor = "", None, ""
    if is_running and not failure:
        program, arguments = split_command(machine.files, command)
        version, config = read_version(machine.files, program), read_wins_config(machine.files, arguments)
        pipe, successor = find_pipe(config), find_successor(config, version)
        programs = list_programs(config, version)
    return facts.Wins(
        is_running=is_running and not failure,
        failure=failure,
        pipe=pipe,
        wanted_pipe=_PIPE,
        programs=programs,
        wanted_programs=wanted.programs,
        successor=successor,
    )
