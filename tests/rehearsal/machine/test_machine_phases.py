"""Phases that the planner cut, on the model machine: steps that span phases, rounds, runs that are cut off."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.plan.resolve import plan_phase
from imagegen.rehearsal.machine.features import Features
from tests.rehearsal.machine.conftest import run_and_end
from tests.unit.plan.steps_to_cut import Said, cut

if TYPE_CHECKING:
    from tests.rehearsal.machine.conftest import Bench

# phase-1: a0 a1 u0 (round 1) | phase-2: a2 u0 (round 2) | phase-3: b0
SAID = (Said("a", "prp"), Said("u", "r", rounds=2), Said("b", after=("u",)))
A0, A1, A2 = r"a/directory:C:\a\0", "a/feature:a-1", r"a/directory:C:\a\2"
FIRST, SECOND = "u/feature:u-0 (round 1)", "u/feature:u-0 (round 2)"
B0 = r"b/directory:C:\b\0"


class Watched(Features):
    """Features that count how often each is looked at."""

    looks: collections.Counter[str]

    def state(self, name: str) -> str:
        self.looks[name] += 1
        return super().state(name)


def prepare(bench: Bench, *said: Said) -> tuple[Watched, list[str]]:
    """The bundle of these steps on a machine that knows their features; the ids of what is set, as it comes."""
    phases = [plan_phase(number, phase) for number, phase in enumerate(cut(said), 1)]
    named = [str(item.fields["name"]) for phase in phases for item in phase.resources() if item.kind == "feature"]
    features = Watched(bench.machine.registry, dict.fromkeys(named, "Available"), named)
    features.looks = collections.Counter()
    bench.machine.features = features
    done: list[str] = []
    bench.machine.before_set = done.append
    bench.pack([_as_json(dataclasses.asdict(phase)) for phase in phases])
    return features, done


def _as_json(phase: dict[str, Any]) -> dict[str, Any]:
    return {**phase, "steps": [{**step, "summary": "for the test", "timeout_s": 60} for step in phase["steps"]]}


def carry_out(bench: Bench) -> list[tuple[int, list[tuple[str, str]]]]:
    """Every phase, and the restart that follows it: its exit code, and what it says of its resources."""
    said = []
    for phase in bench.plan["phases"]:
        outcome = bench.run(phase["name"])
        said.append((outcome.exit_code, [(one["id"], one["status"]) for one in bench.events(outcome, "resource")]))
        if phase["restart"]:
            bench.machine.restart()
    return said


def statuses_in_report(bench: Bench) -> list[tuple[str, str, str]]:
    return [(one["phase"], one["id"], one["status"]) for one in bench.kept("report.json")["resources"]]


REPORTED = [
    ("phase-1", A0, "changed"),
    ("phase-1", A1, "changed"),
    ("phase-1", FIRST, "changed"),
    ("phase-2", A2, "changed"),
    ("phase-2", SECOND, "ok"),
    ("phase-3", B0, "changed"),
]


def test_a_step_spans_phases_and_a_round_with_nothing_due_changes_nothing(bench: Bench) -> None:
    features, done = prepare(bench, *SAID)
    assert carry_out(bench) == [
        (3010, [(A0, "changed"), (A1, "changed"), (FIRST, "changed")]),
        (0, [(A2, "changed"), (SECOND, "ok")]),
        (0, [(B0, "changed")]),
    ]
    assert done == [A0, A1, FIRST, A2, B0]
    assert statuses_in_report(bench) == REPORTED
    report = bench.kept("report.json")
    assert [(phase["name"], phase["changed"], phase["restart"]) for phase in report["phases"]] == [
        ("phase-1", 3, True), ("phase-2", 1, False), ("phase-3", 1, False),
    ]  # fmt: skip
    # The last round stands for the others: before and after set in the first, in the second, in phase-3 and at the end.
    assert features.looks["u-0"] == 2 + 1 + 1 + 1 + 1  # and set itself looks
    assert {one["id"]: one["facts"] for one in report["resources"] if one["step"] == "u"} == {
        FIRST: None, SECOND: {"state": "Installed"},
    }  # fmt: skip


def test_a_round_does_what_is_due_after_the_restart_before_it(bench: Bench) -> None:
    features, done = prepare(bench, *SAID)
    assert bench.run("phase-1").exit_code == 3010
    bench.machine.restart()
    features.uninstall("u-0")
    bench.machine.restart()  # as an update that shows only after another: it is due again
    assert bench.run("phase-2").exit_code == 3010
    assert done == [A0, A1, FIRST, A2, SECOND]
    bench.machine.restart()
    bench.done("phase-3")
    assert [status for *_, status in statuses_in_report(bench)] == ["changed"] * 6


def test_what_is_still_due_after_the_last_round_fails_by_name(bench: Bench) -> None:
    features, _ = prepare(bench, *SAID)
    for phase in ("phase-1", "phase-2"):
        assert bench.run(phase).exit_code in (0, 3010)
        bench.machine.restart()
    features.uninstall("u-0")
    bench.machine.restart()
    outcome = bench.run("phase-3")
    assert outcome.exit_code == 6
    assert bench.events(outcome)[-1]["reason"] == (
        f"step u, resource {SECOND}: it was set and needs a restart, but the plan has none after phase-3"
    )


@pytest.mark.parametrize(
    ("phase", "owner", "act", "argument"),
    [
        ("phase-1", "files", "make_folder", r"C:\a\0"),
        ("phase-1", "features", "install", "a-1"),
        ("phase-1", "features", "install", "u-0"),
        ("phase-2", "files", "make_folder", r"C:\a\2"),
        ("phase-3", "files", "make_folder", r"C:\b\0"),
    ],
)
def test_a_run_that_is_cut_off_anywhere_is_resumed(
    bench: Bench, phase: str, owner: str, act: str, argument: str
) -> None:
    _, done = prepare(bench, *SAID)
    for planned in bench.plan["phases"]:
        if planned["name"] == phase:
            run_and_end(bench, phase, getattr(bench.machine, owner), act, argument)
        assert bench.run(planned["name"]).exit_code == (3010 if planned["name"] == "phase-1" else 0)
        if planned["restart"]:
            bench.machine.restart()
    assert done == [A0, A1, FIRST, A2, B0]
    assert statuses_in_report(bench) == REPORTED


def test_looking_looks_at_the_last_round_only(bench: Bench) -> None:
    features, _ = prepare(bench, *SAID)
    outcome = bench.run("all", "-Check")
    assert outcome.exit_code == 5
    assert [(one["phase"], one["id"]) for one in bench.events(outcome, "resource")] == [
        ("phase-1", A0), ("phase-1", A1), ("phase-2", A2), ("phase-2", SECOND), ("phase-3", B0),
    ]  # fmt: skip
    assert features.looks["u-0"] == 1
    assert [one["resources"] for one in bench.events(outcome, "phase")] == [2, 2, 2, 2, 1, 1]


def test_two_steps_share_a_restart(bench: Bench) -> None:
    _, done = prepare(bench, Said("a", "prp"), Said("b", "prp"))
    assert [code for code, _ in carry_out(bench)] == [3010, 0]
    assert done == [A0, B0, A1, "b/feature:b-1", A2, r"b/directory:C:\b\2"]


def test_the_phase_after_the_last_restart_has_no_steps_and_reports(bench: Bench) -> None:
    prepare(bench, Said("a", "pr"))
    assert carry_out(bench) == [(3010, [(A0, "changed"), (A1, "changed")]), (0, [])]
    assert statuses_in_report(bench) == [("phase-1", A0, "changed"), ("phase-1", A1, "changed")]
    bench.machine.files.remove(r"C:\a")
    assert bench.run("phase-2").exit_code == 0  # what is no longer so is set again
    assert bench.machine.files.is_folder(r"C:\a\0")
