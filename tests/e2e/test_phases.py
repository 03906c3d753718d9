"""A plan of three phases, with a step that spans two and one in rounds: real Packer checks it and builds it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from tests.conftest import REPOSITORY
from tests.e2e.rehearsal_support import DEADLINE_S, TARGETS, imagegen, user_environ

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

CONFIG = REPOSITORY / "tests" / "data" / "three-phases" / "config.yaml"


@pytest.mark.parametrize("target", TARGETS)
def test_three_phases_are_checked_built_and_reported(target: str, tmp_path: Path) -> None:
    # Every build begins with `packer fmt -check` and `packer validate`.
    words = imagegen("build", CONFIG, "--target", target, "--rehearse", "--plain", "--format", "json")
    done = process.run(
        [*words, "--out", str(tmp_path / "out")], environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stderr.count("Machine successfully restarted") == 2
    report = json.loads(done.stdout)["report"]
    assert [phase["name"] for phase in report["phases"]] == ["phase-1", "phase-2", "phase-3"]
    assert [(one["id"], one["status"], one["facts"]) for one in report["resources"] if one["step"] == "patches"] == [
        ("patches/feature:Failover-Clustering (round 1)", "changed", None),
        ("patches/feature:Failover-Clustering (round 2)", "ok", {"state": "Installed"}),
    ]


def test_updates_begin_with_a_restart_and_have_one_after_each_round(tmp_path: Path) -> None:
    """Real Packer takes the restart before the first phase. The report has the revision and the KBs of the machine."""
    base = REPOSITORY / "tests" / "rules" / "base.yaml"
    wanted = "windows.updates={categories: [security], kbs: [KB5066782], exclude: [KB5034439]}"
    words = imagegen("build", base, "--target", "aws", "--rehearse", "--plain", "--format", "json", "--set", wanted)
    done = process.run(
        [*words, "--out", str(tmp_path / "out")], environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stderr.count("Machine successfully restarted") == 5
    report = json.loads(done.stdout)["report"]
    # The last round finds nothing more, and the phase after it has the steps of the node.
    rounds = [(one["id"], one["status"]) for one in report["resources"] if one["kind"] == "update"]
    assert rounds == [
        ("updates/update:windows (round 1)", "changed"),
        ("updates/update:windows (round 2)", "changed"),
        ("updates/update:windows (round 3)", "changed"),
    ]
    assert report["machine"]["ubr"] == 5519
    assert {"KB9000002", "KB9000003"} <= set(report["machine"]["updates"])
