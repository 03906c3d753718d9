"""Shared code of the boot's tests: the model machine as a build captured it, without Packer and the clouds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.files import write_tree
from imagegen.pipeline import prepare_target
from imagegen.rehearsal import guest
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.machine.engine import run_entry
from imagegen.rehearsal.machine.generalise import generalise
from imagegen.rehearsal.machine.stock import stock_windows
from tests.e2e.rehearsal_support import loaded, rendered

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine


def capture(target: str, folder: Path) -> Machine:
    """Build the shipped config's tree on the model machine, seal it, and return it: its disk is the image."""
    artifacts = make_artifacts(prepare_target(loaded(), target).steps)
    machine = stock_windows(folder, release="2022", cloud=target)
    with tempfile.TemporaryDirectory() as scratch:
        write_tree(rendered(target).files, Path(scratch) / "tree")
        expected = guest.expected_from_tree(Path(scratch) / "tree")
    machine.files.write(guest.BUNDLE_PATH, expected.bundle)
    for phase in expected.phases:
        outcome = run_entry(machine, phase.arguments, lambda url, _proxy: artifacts[url])
        assert outcome.exit_code in (0, 3010), outcome.output
        if phase.restart:
            machine.restart()
    outcome = generalise(machine, cloud=target)
    assert outcome.exit_code == 0, outcome.output
    return machine
