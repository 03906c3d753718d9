"""What a booting machine does is recorded: what nobody knows, what Windows refuses, and why a service did not start."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.boot.node import Node
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.clouds import guest_agents, stand_in
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED
from tests.rehearsal.boot.conftest import put_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.machine import Machine


def make_node(machine: Machine, act: Callable[[], object]) -> Node:
    """A node whose cloud's agent does this at its start. Nothing starts its cloudbase-init."""

    def run_at_boot(*_: object) -> list[str]:
        act()
        return []

    cloud = stand_in("aws")
    instance = cloud.make_instance(b"")
    agents = dataclasses.replace(guest_agents("aws"), run_at_boot=run_at_boot)
    runner = Runner(Path("unused"), {})
    platform = cloud.make_platform(instance, lambda: 0.0)
    return Node(machine, instance, platform, agents=agents, programs={}, runner=runner, proxy="")


def fail(error: Exception) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnknownCommandError("the rehearsal does not know x"), "the rehearsal does not know x"),
        (
            RefusedByWindows("there is no service x (error 1060)"),
            "the rehearsal does not know what follows where Windows refuses: there is no service x (error 1060)",
        ),
    ],
)
def test_what_nobody_handles_ends_the_boot_by_name(aws: Machine, error: Exception, text: str) -> None:
    node = make_node(aws, fail(error))
    assert not node.start_again()
    assert (node.runs.unknown, node.runs.was_interrupted) == ([text], True)


PROGRAM, OTHER = r"C:\own\own.exe", r"C:\own\other.exe"


def test_windows_reason_for_a_service_that_does_not_start_is_kept(aws: Machine) -> None:
    services = aws.services
    services.create("Other", OTHER, "other", AUTOMATIC)
    services.create("Own", PROGRAM, "own", AUTOMATIC, depends_on=["other"])
    assert services.refusal("own") == ""
    aws.restart()
    reason = rf"service other cannot be started: cannot find its program {OTHER} (error 2)"
    assert services.refusal("OTHER").lower() == reason.lower()
    assert services.refusal("own").lower() == f"service own cannot be started (error 1068): {reason}".lower()
    put_file(aws, OTHER, b"MZ")
    with pytest.raises(RefusedByWindows):
        services.start("own")
    assert (services.refusal("other"), services.is_running("other")) == ("", True)
    assert services.refusal("own").endswith(rf"cannot find its program {PROGRAM} (error 2)")
    put_file(aws, PROGRAM, b"MZ")
    services.start("own")
    assert services.refusal("own") == ""


def test_a_reason_from_before_a_restart_says_nothing_of_a_service_that_was_not_started(aws: Machine) -> None:
    services = aws.services
    services.create("own", PROGRAM, "own", DISABLED)
    with pytest.raises(RefusedByWindows):
        services.start("own")
    assert "it is disabled" in services.refusal("own")
    aws.restart()
    assert services.refusal("own") == ""
