"""Shells against a restart that comes in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.winrm.command import Result
from imagegen.rehearsal.winrm.envelope import CMD_SHELL, Action, Request
from imagegen.rehearsal.winrm.observations import Observations
from imagegen.rehearsal.winrm.shells import Shells

if TYPE_CHECKING:
    from imagegen.rehearsal.winrm.command import Write


class _Guest:
    def __init__(self) -> None:
        self.commands: list[str] = []

    def run(self, command: str, _write: Write) -> Result:
        self.commands.append(command)
        return Result()

    def disconnected(self) -> None:
        """Its connections are never lost."""

    def restarted(self) -> None:
        """Nothing of before is kept here."""


def test_a_command_whose_shell_is_dropped_before_it_starts_does_not_run() -> None:
    guest = _Guest()
    shells = Shells(guest, Observations())
    shells.answer(_request(Action.CREATE))
    ((shell, commands),) = shells._shells.items()
    assert shells.drop() == []
    assert not shells._start(_request(Action.COMMAND, shell, "x"), commands).ok
    assert guest.commands == []


def _request(action: Action, shell: str = "", command: str = "") -> Request:
    return Request(action, "uuid:1", CMD_SHELL, timeout_s=1, to="", shell_id=shell, command=command)
