"""A plan of three phases, with a step that spans two and a step in rounds, as Packer, the guest and people read it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.cli.verbs.plans import plan_lines
from imagegen.render import guest_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.plan.model import BuildPlan
    from imagegen.plan.resolve import Decision
    from tests.conftest import Decided

CONFIG = Path(__file__).parents[2] / "data" / "three-phases" / "config.yaml"


@pytest.fixture(params=["aws", "azure"])
def decision(request: pytest.FixtureRequest, decide: Callable[[Path, str], Decided]) -> Decision:
    return decide(CONFIG, request.param).decision


@pytest.fixture
def plan(decision: Decision) -> BuildPlan:
    return decision.plan


def test_hcl_runs_every_phase_and_restarts_between_them(decision: Decision) -> None:
    text = pipeline.render_tree(decision)["build.pkr.hcl"].decode()
    assert re.findall(r'  # (phase-.*)|  provisioner "(.*)"|phases\["(.*)"\].command', text) == [
        ("", "file", ""),
        ("phase-1: system, patches.", "", ""), ("", "windows-shell", ""), ("", "", "phase-1"),
        ("", "windows-restart", ""),
        ("phase-2: containerd, kubernetes, cloudbase-init, release-record, patches, hypervisor.", "", ""),
        ("", "windows-shell", ""), ("", "", "phase-2"), ("", "windows-restart", ""),
        ("phase-3: hypervisor, audit.", "", ""), ("", "windows-shell", ""), ("", "", "phase-3"),
        ("", "file", ""),
        ("", "shell-local", ""),
        ("", "windows-shell", ""),
    ]  # fmt: skip
    assert re.findall(r"valid_exit_codes += (.*)", text) == ["[0, 3010]", "[0, 3010]", "[0]", "[0]", "[0]"]
    assert re.findall(r'  error-cleanup-provisioner "(.*)"', text) == ["windows-shell"]


def test_the_guest_gets_each_step_where_its_resources_are(plan: BuildPlan) -> None:
    phases = json.loads(guest_plan(plan))["phases"]
    assert [[(step["name"], step["repeated"]) for step in phase["steps"]] for phase in phases] == [
        [("system", False), ("patches", True), ("system", False)],
        [
            (name, False)
            for name in ("containerd", "kubernetes", "cloudbase-init", "release-record", "patches", "hypervisor")
        ],
        [("hypervisor", False), ("audit", False)],
    ]
    assert [phase["timeout_s"] for phase in phases] == [
        600 + sum(step["timeout_s"] for step in phase["steps"]) for phase in phases
    ]
    assert {step["timeout_s"] for phase in phases for step in phase["steps"] if step["name"] == "hypervisor"} == {600}


def test_a_last_phase_without_steps_says_what_it_is_for(decision: Decision) -> None:
    first, second, third = decision.plan.image.phases
    image = dataclasses.replace(decision.plan.image, phases=(first, second, dataclasses.replace(third, steps=())))
    plan = dataclasses.replace(decision.plan, image=image)
    text = pipeline.render_tree(dataclasses.replace(decision, plan=plan))["build.pkr.hcl"].decode()
    assert "  # phase-3: every resource is tested again.\n" in text
    assert "phase-3\n  every resource is tested again\nartifacts" in "\n".join(plan_lines(plan))
    assert json.loads(guest_plan(plan))["phases"][-1]["steps"] == []


def test_people_read_the_phases_by_their_names(plan: BuildPlan) -> None:
    lines = plan_lines(plan)
    assert [line for line in lines if line.startswith("phase-")] == [
        "phase-1, then a restart", "phase-2, then a restart", "phase-3",
    ]  # fmt: skip
    assert [line.split()[1:] for line in lines if "Failover-Clustering" in line] == [
        ["Failover-Clustering", "(round", "1)"], ["Failover-Clustering", "(round", "2)"],
    ]  # fmt: skip


def test_packer_has_the_time_of_every_phase_and_restart(plan: BuildPlan) -> None:
    waits_min = plan.build.timeouts_min
    restarts_min = 2 * waits_min["restart"]
    assert plan.build.longest_s == (
        3 * 3600
        + sum(plan.build.phase_timeouts_s.values())
        + 60 * (waits_min["winrm"] + restarts_min + waits_min["generalise"])
    )
