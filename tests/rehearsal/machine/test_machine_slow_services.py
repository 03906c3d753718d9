"""Services whose program takes time to answer, and the machine's clock that runs for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.machine.kinds import service
from imagegen.rehearsal.machine.kinds.kind import Supplies
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.steps.kinds import Service

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine


class Recorded:
    """A program that records what the service manager does with it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_serving = True

    def begin(self) -> None:
        self.calls.append("begin")

    def end(self) -> None:
        self.calls.append("end")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = stock_windows(tmp_path, release="2022", cloud="aws")
    machine.files.make_folder(r"C:\k")
    machine.files.write(r"C:\k\slow.exe", b"MZ")
    machine.services.create("slow", r"C:\k\slow.exe", "slow", AUTOMATIC)
    return machine


@pytest.fixture
def program(machine: Machine) -> Recorded:
    recorded = Recorded()
    machine.services.slow_programs["slow"] = recorded
    return recorded


def test_a_slow_service_is_starting_until_it_answers(machine: Machine, program: Recorded) -> None:
    services = machine.services
    services.start("Slow")
    assert (services.is_starting("slow"), services.is_running("slow")) == (True, False)
    services.start("slow")
    assert program.calls == ["begin"]
    assert not services.is_serving("slow")
    services.answered("slow")
    assert (services.is_starting("slow"), services.is_running("slow")) == (False, True)
    assert services.is_serving("slow")
    program.is_serving = False
    assert (services.is_serving("slow"), services.is_running("slow")) == (False, True)
    services.stop("slow")
    assert program.calls == ["begin", "end"]


def test_a_service_that_is_starting_cannot_be_stopped(machine: Machine, program: Recorded) -> None:
    machine.services.start("slow")
    with pytest.raises(RefusedByWindows, match="error 1061"):
        machine.services.stop("slow")
    assert machine.services.is_starting("slow")
    assert program.calls == ["begin"]


@pytest.mark.parametrize(("state", "calls"), [("stopped", ["begin", "end"]), ("running", ["begin"])])
def test_a_service_that_is_starting_is_set_when_it_runs(
    machine: Machine, program: Recorded, state: str, calls: list[str]
) -> None:
    """Windows neither starts nor stops it meanwhile."""
    fields = dict.fromkeys(("display_name", "command", "depends_on", "recovery"))
    wanted = Service.model_validate({"name": "slow", "start": "automatic", **fields, "state": state})
    machine.services.start("slow")
    machine.later(20, lambda: machine.services.answered("slow"))
    with pytest.raises(RefusedByWindows, match=r"is starting, not .* no time left"):
        service.put(machine, wanted, Supplies(bundle="", logs="", timeout_s=10))
    service.put(machine, wanted, Supplies(bundle="", logs="", timeout_s=60))
    assert service.test(machine, wanted, service.get(machine, wanted)) == []
    assert program.calls == calls


def test_a_program_that_ended_can_start_again(machine: Machine, program: Recorded) -> None:
    machine.services.start("slow")
    machine.services.ended("slow")
    assert not machine.services.is_starting("slow")
    machine.services.stop("slow")
    machine.services.start("slow")
    assert program.calls == ["begin", "begin"]


def test_a_restart_ends_and_begins_it(machine: Machine, program: Recorded) -> None:
    machine.services.start("slow")
    machine.restart()
    assert program.calls == ["begin", "end", "begin"]
    assert machine.services.is_starting("slow")


def test_a_copy_of_the_machine_has_no_slow_programs(machine: Machine, program: Recorded, tmp_path: Path) -> None:
    other = machine.copy(tmp_path / "copy")
    other.services.start("slow")
    assert other.services.is_running("slow")
    assert program.calls == []


def test_the_clock_runs_what_an_action_adds(machine: Machine) -> None:
    seen: list[float] = []

    def act() -> None:
        seen.append(machine.up_s)
        machine.later(10, act)

    machine.later(10, act)
    assert machine.wait_until(lambda: len(seen) == 3, 60)
    assert (seen, machine.up_s) == ([10, 20, 30], 30)
    assert not machine.wait_until(lambda: False, 15)
    assert (seen[3:], machine.up_s) == ([40], 45)


def test_a_process_can_be_looked_up_while_it_runs(machine: Machine) -> None:
    with machine.process("kubeadm"):
        assert machine.processes == ["kubeadm"]
    assert machine.processes == []
