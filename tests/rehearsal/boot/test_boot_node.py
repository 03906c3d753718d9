"""What a booting machine does is recorded: what nobody knows, what Windows refuses, and why a service did not start."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.boot.node import Node, Outside
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.clouds import guest_agents, stand_in
from imagegen.rehearsal.machine.refusal import RefusedByWindows

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
    return Node(machine, instance, Outside(platform, runner, ""), agents)


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
