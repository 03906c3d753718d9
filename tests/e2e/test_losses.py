"""Each resource is needed: without it the build fails, or the node that boots says what it has lost.

tests/data/losses.json has the loss of each resource, or why nothing but a listing of resources shows it. `make losses`
boots a node without each of them; here are all that fail the build, and one boot for each check.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.lines import joined
from tests.conftest import REPOSITORY
from tests.e2e.losses_support import VARIANTS, Interrupted, build, find_losses, resources

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

TABLE: dict[str, Any] = json.loads((REPOSITORY / "tests" / "data" / "losses.json").read_text())
LISTED: dict[str, str] = TABLE["listed"]


@dataclasses.dataclass(frozen=True)
class Row:
    """What is lost without a resource of a variant."""

    variant: str
    resource: str
    loss: str

    @property
    def check(self) -> str:
        """`build`, `seal`, or the check of the boot."""
        return self.loss.partition(":")[0]


ROWS = [Row(variant, *row) for variant, rows in TABLE["losses"].items() for row in rows.items()]
BUILDS = [row for row in ROWS if row.check in ("build", "seal")]
BOOTS = list({row.check: row for row in ROWS if row.check not in ("build", "seal")}.values())


def is_listed(resource: str) -> bool:
    return any(re.fullmatch(pattern, resource) for pattern in LISTED)


@pytest.mark.parametrize("row", [*BUILDS, *BOOTS], ids=lambda row: f"{row.variant}-{row.resource}")
def test_a_loss_has_its_name(row: Row, tmp_path: Path) -> None:
    losses = find_losses(VARIANTS[row.variant], tmp_path, row.resource)
    assert any(loss.startswith(row.loss) for loss in losses), joined(losses)


def test_every_resource_has_a_row() -> None:
    known = {row.resource for row in ROWS}
    asked = {resource for variant in VARIANTS.values() for resource in resources(variant)}
    assert [resource for resource in sorted(asked - known) if not is_listed(resource)] == []
    assert sorted(known - asked) == []
    assert [resource for resource in sorted(known) if is_listed(resource)] == []
    assert [pattern for pattern in LISTED if not any(re.fullmatch(pattern, resource) for resource in asked)] == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_run_changes_nothing(variant: str, tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def read(output: str) -> None:
        lines = [line.removeprefix("imagegen: ") for line in output.splitlines() if line.startswith("imagegen: ")]
        events = [json.loads(line) for line in lines]
        seen.update({event["id"]: event["status"] for event in events if event["event"] == "resource"})

    build(VARIANTS[variant], tmp_path, again=read)
    assert seen == dict.fromkeys(resources(VARIANTS[variant]), "ok")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_build_that_is_killed_before_each_resource_resumes(variant: str, tmp_path: Path) -> None:
    seen: set[str] = set()

    def interrupt(resource: str) -> None:
        if resource not in seen:
            seen.add(resource)
            raise Interrupted

    whole = build(VARIANTS[variant], tmp_path / "whole")
    resumed = build(VARIANTS[variant], tmp_path / "resumed", interrupt=interrupt)
    assert len(seen) > 50
    assert _snapshot(resumed) == _snapshot(whole)


def _snapshot(machine: Machine) -> dict[str, Any]:
    """What a build has made, without the engine's own files."""
    files = {path: machine.files.read(path) for path in machine.files.below("C:") if "imagegen" not in path.lower()}
    running = [name for name in machine.services.names() if machine.services.is_running(name)]
    return {"files": files, "registry": repr(machine.registry.__dict__), "running": running}
