"""Programs of Windows as cloudbase-init's plugins call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import Process, UnknownCommandError
from imagegen.rehearsal.boot.shell import Shell

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

SC = r"C:\Windows\System32\sc.exe"


def test_the_triggers_of_the_time_service_are_replaced(aws: Machine) -> None:
    shell, key = Shell({}, []), aws.services.key("W32Time") + r"\TriggerInfo"
    aws.registry.make_key(rf"{key}\0")
    assert shell.run(Process(aws, (SC, "triggerinfo", "w32time", "delete"))).exit_code == 0
    assert aws.registry.subkeys(key) == []
    line = (SC, "triggerinfo", "w32time", "start/networkon", "stop/networkoff")
    assert shell.run(Process(aws, line)).exit_code == 0
    assert [aws.registry.number(rf"{key}\{name}", "Action") for name in aws.registry.subkeys(key)] == [1, 2]


def test_the_triggers_of_no_service_cannot_be_set(aws: Machine) -> None:
    assert Shell({}, []).run(Process(aws, (SC, "triggerinfo", "nobody", "delete"))).exit_code == 1060


def test_an_unknown_trigger_is_refused(aws: Machine) -> None:
    with pytest.raises(UnknownCommandError, match="start/domainjoin"):
        Shell({}, []).run(Process(aws, (SC, "triggerinfo", "w32time", "start/domainjoin")))
