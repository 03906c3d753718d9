"""A machine with what cloudbase-init finds around it, and its calls without a child that makes them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.boot.model import Ended
from imagegen.rehearsal.cloudbase_init.run import answer, make_owners
from imagegen.rehearsal.cloudbase_init.system import Surroundings
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.machine.services import MANUAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine
    from imagegen.rehearsal.network.messages import Host

SERVICE = "cloudbase-init"
PROGRAM = r"C:\Program Files\service.exe"


@dataclasses.dataclass
class OnePlatform:
    """A cloud that attaches a DVD."""

    drives: Mapping[str, Mapping[str, bytes]] = dataclasses.field(
        default_factory=lambda: {"E:": {"ovf-env.xml": b"<xml/>", r"tag\it": b"1"}}
    )
    dhcp_options: Mapping[int, bytes] = dataclasses.field(default_factory=lambda: {245: b"\xa8\x3f\x81\x10"})
    hosts: Mapping[str, Host] = dataclasses.field(default_factory=dict)
    restricted: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)

    def refusal(self) -> str | None:
        return None


@dataclasses.dataclass
class Programs:
    """The programs of the machine: what they were started with."""

    lines: list[tuple[tuple[str, ...], bool, str]] = dataclasses.field(default_factory=list)

    def run(self, arguments: Sequence[str], shell: bool, user: str) -> Ended:
        self.lines.append((tuple(arguments), shell, user))
        return Ended(3, "said")


@dataclasses.dataclass
class Calls:
    """Makes calls as the process with the machine answers them."""

    around: Surroundings
    programs: Programs

    @property
    def machine(self) -> Machine:
        return self.around.machine

    def answer(self, name: str, *arguments: object, **named: object) -> dict[str, Any]:
        call = [name, list(arguments), named]
        return answer(call, make_owners(self.around), self.around)

    def __call__(self, name: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401 - each call's own
        found = self.answer(name, *arguments, **named)
        assert "value" in found, found
        return found["value"]


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return stock_windows(tmp_path_factory.mktemp("stock"), release="2022", cloud="aws")


@pytest.fixture
def calls(stock: Machine, tmp_path: Path) -> Calls:
    """The calls on a stock machine with a service `cloudbase-init`, which does not run."""
    machine = stock.copy(tmp_path / "machine")
    machine.files.write(PROGRAM, b"MZ version 1.2.3")
    machine.services.create(SERVICE, f'"{PROGRAM}"', "Cloudbase-Init", MANUAL)
    programs = Programs()
    return Calls(Surroundings(machine, OnePlatform(), programs.run), programs)
