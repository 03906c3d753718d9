"""How old a machine is, by the model's own time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine import stock_windows

if TYPE_CHECKING:
    from pathlib import Path


def test_a_machines_age_counts_over_its_restarts_and_begins_with_a_copy(tmp_path: Path) -> None:
    machine = stock_windows(tmp_path / "one", release="2022", cloud="azure")
    machine.wait_until(lambda: False, 10)
    machine.restart()
    machine.wait_until(lambda: False, 5)
    machine.restart()
    machine.wait_until(lambda: False, 1)
    assert (machine.up_s, machine.age_s) == (1, 16)
    copied = machine.copy(tmp_path / "other")
    assert (copied.up_s, copied.age_s) == (0, 0)
    copied.wait_until(lambda: False, 2)
    assert (copied.age_s, machine.age_s) == (2, 16)
