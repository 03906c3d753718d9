"""Where the planner cuts phases: cases to read, and what holds of all graphs of steps."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imagegen.base.errors import ConfigError
from imagegen.plan.context import order_steps
from imagegen.plan.resolve import find_wrong_restarts, plan_phase
from tests.unit.plan.steps_to_cut import Said, cut, typed_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from imagegen.plan.resolve import PlacedResource

    Place = tuple[str, int, int]
    """A resource: its step, round and index."""


def place(placed: PlacedResource) -> Place:
    index = placed.draft.path[0]
    assert isinstance(index, int)
    return placed.step.name, placed.round, index


def shown(phases: Sequence[Sequence[PlacedResource]]) -> str:
    """`a0 b1.2 | …`: resource 0 of step a, resource 1 of step b in its second round, then a restart."""
    return " | ".join(
        " ".join(
            f"{item.step.name}{item.draft.path[0]}{f'.{item.round}' if item.step.meta.rounds > 1 else ''}"
            for item in phase
        )
        for phase in phases
    )


CASES = {
    "the last one follows all": ([Said("a", last=True), Said("b"), Said("c", after=("b",))], "b0 c0 a0"),
    "the last one waits for every restart": ([Said("a", last=True), Said("b", "r"), Said("c")], "c0 b0 | a0"),
    "no restart is one phase": ([Said("a", "pp"), Said("b")], "a0 a1 b0"),
    "by name where nothing else is said": ([Said("c"), Said("a"), Said("b")], "a0 b0 c0"),
    "after comes before names": ([Said("a", after=("c",)), Said("b"), Said("c")], "b0 c0 a0"),
    "a step spans phases": ([Said("a", "prp")], "a0 a1 | a2"),
    "resources that may restart share a restart": ([Said("a", "prrprp")], "a0 a1 a2 | a3 a4 | a5"),
    "after a restart is the next phase": ([Said("a", "pr"), Said("b", after=("a",))], "a0 a1 | b0"),
    "after the rest of a step that restarts": ([Said("a", "rp"), Said("b", after=("a",))], "a0 | a1 b0"),
    "a needed restart is waited for": ([Said("b", "rp"), Said("a", needs_restart_of=("b",))], "b0 | b1 a0"),
    "the last restart is the needed one": (
        [Said("b", "rprp"), Said("a", needs_restart_of=("b",))], "b0 | b1 b2 | b3 a0"),
    "steps without a relation share phases": ([Said("a", "prp"), Said("b", "prp")], "a0 b0 a1 b1 | a2 b2"),
    "what has no relation does not wait": (
        [Said("a", "pr"), Said("b", "pp"), Said("c", after=("a",))], "a0 b0 b1 a1 | c0"),
    "two restarts, one after the other": (
        [Said("a", "r"), Said("b", "r", after=("a",)), Said("c", after=("b",))], "a0 | b0 | c0"),
    "after the longest way": (
        [Said("a", "r"), Said("b", "r", after=("a",)), Said("c"), Said("d", after=("b", "c"))], "c0 a0 | b0 | d0"),
    "rounds": (
        [Said("a", "pr", rounds=3), Said("b", after=("a",)), Said("c", "pr")],
        "a0.1 c0 a1.1 c1 | a0.2 a1.2 | a0.3 a1.3 | b0"),
    "rounds of what restarts only": (
        [Said("a", "rr", rounds=2), Said("b", after=("a",))], "a0.1 a1.1 | a0.2 a1.2 | b0"),
    "one round is none": ([Said("a", "rp", rounds=1)], "a0 | a1"),
    "a plan ends after its last restart": ([Said("a", "pr")], "a0 a1 | "),
    "order passes through an empty step": (
        [Said("a", "r"), Said("b", "", after=("a",)), Said("c", after=("b",))], "a0 | c0"),
    "nothing is no phase": ([Said("a", "")], ""),
}  # fmt: skip


@pytest.mark.parametrize(("said", "phases"), CASES.values(), ids=list(CASES))
def test_phases(said: list[Said], phases: str) -> None:
    assert shown(cut(said)) == phases


def test_order_passes_through_a_step_that_is_not_in_the_plan() -> None:
    said = [Said("a", "r"), Said("b", "pr", needs_restart_of=("a",)), Said("c", after=("b",)), Said("d")]
    assert shown(cut(said)) == "d0 a0 | b0 b1 | c0"
    assert shown(cut(said, left_out=["b"])) == "d0 a0 | c0"


def test_phases_have_plain_names_and_steps_as_they_follow_one_another() -> None:
    said = [Said("a", "prp"), Said("b", "pr"), Said("u", "r", rounds=2)]
    phases = [plan_phase(number, phase) for number, phase in enumerate(cut(said), 1)]
    assert [(phase.name, phase.restart) for phase in phases] == [
        ("phase-1", True), ("phase-2", True), ("phase-3", False),
    ]  # fmt: skip
    assert [[(step.name, step.repeated, len(step.resources)) for step in phase.steps] for phase in phases] == [
        [("a", False, 1), ("b", False, 1), ("a", False, 1), ("b", False, 1), ("u", True, 1)],
        [("a", False, 1), ("u", False, 1)],
        [],
    ]
    ids = [resource.id for phase in phases for resource in phase.resources() if resource.id.startswith("u")]
    assert ids == ["u/feature:u-0 (round 1)", "u/feature:u-0 (round 2)"]


@pytest.mark.parametrize(
    ("said", "left_out", "expected"),
    [
        ([Said("a", "r"), Said("b", needs_restart_of=("a",))], [], []),
        ([Said("a", "p"), Said("b", needs_restart_of=("a",))], [], [("b/meta/step.yml", "needs_restart_of[0]")]),
        ([Said("a", "r"), Said("b", needs_restart_of=("a",))], ["a"], [("b/meta/step.yml", "needs_restart_of[0]")]),
        ([Said("a", "pr", rounds=2)], [], []),
        ([Said("a", "", rounds=2)], [], []),
        ([Said("a", "p", rounds=2)], [], [("a/meta/step.yml", "rounds")]),
        ([Said("a", "rp", rounds=2)], [], [("a/meta/step.yml", "rounds")]),
        ([Said("a", "rpr", rounds=2)], [], [("a/meta/step.yml", "rounds")]),
        ([Said("a", "rp"), Said("b", "rpr")], [], []),
    ],
)
def test_restarts_that_will_not_come_are_told(
    said: list[Said], left_out: list[str], expected: list[tuple[str, str]]
) -> None:
    problems = find_wrong_restarts(typed_steps(said, left_out))
    assert [(problem.file, problem.path) for problem in problems] == expected


def test_a_cycle_names_its_steps_and_no_others() -> None:
    said = [
        Said("a", after=("c",)),
        Said("b", after=("a",)),
        Said("c", needs_restart_of=("b",)),
        Said("d", after=("a",)),
    ]
    with pytest.raises(ConfigError, match=r"cycle: a, b, c$") as caught:
        cut(said)
    assert {(problem.file, problem.path) for problem in caught.value.problems} == {
        ("a/meta/step.yml", "after[0]"), ("b/meta/step.yml", "after[0]"), ("c/meta/step.yml", "needs_restart_of[0]"),
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"cycle: a$"):
        cut([Said("a", after=("a",))])


@pytest.mark.parametrize(
    ("said", "places"),
    [
        ([Said("a", after=("b",)), Said("b", last=True)], {("a", "after[0]"), ("b", "last")}),
        ([Said("a", last=True), Said("b", last=True)], {("a", "last"), ("b", "last")}),
    ],
)
def test_nothing_follows_the_last_step(said: list[Said], places: set[tuple[str, str]]) -> None:
    with pytest.raises(ConfigError, match=r"cycle: a, b$") as caught:
        cut(said)
    found = {(problem.file.partition("/")[0], problem.path) for problem in caught.value.problems}
    assert found == places


def test_of_several_cycles_the_same_one_is_told_whatever_the_order() -> None:
    said = [Said(name, after=(other,)) for name, other in ("ab", "ba", "cd", "dc")]
    for order in itertools.permutations(said):
        with pytest.raises(ConfigError, match=r"cycle: a, b$"):
            cut(order)


# ---- what holds of all graphs


@st.composite
def graphs(draw: st.DrawFn) -> list[Said]:
    """Steps, each after some before it, in an order that is not the order of their names."""
    said: list[Said] = []
    for name in draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)):
        names = [other.name for other in said]
        restarting = [other.name for other in said if "r" in other.resources]
        resources = draw(st.text("pr", max_size=5))
        in_rounds = resources.endswith("r") and "rp" not in resources
        said.append(
            Said(
                name,
                resources,
                tuple(draw(st.lists(st.sampled_from(names), max_size=3, unique=True))) if names else (),
                tuple(draw(st.lists(st.sampled_from(restarting), max_size=2, unique=True))) if restarting else (),
                draw(st.integers(1, 3)) if in_rounds else 1,
            )
        )
    return said


def resources_of(said: Said) -> Iterator[Place]:
    for number, index in itertools.product(range(1, said.rounds + 1), range(len(said.resources))):
        yield said.name, number, index


def before(said: Sequence[Said]) -> dict[str, set[str]]:
    """All the steps that each names, and that these name."""
    found: dict[str, set[str]] = {}
    for one in said:  # a graph's steps name earlier ones only
        found[one.name] = set().union(*({name} | found[name] for name in (*one.after, *one.needs_restart_of)))
    return found


def longest_paths(said: Sequence[Said]) -> dict[Place, int]:
    """The restarts that must come before each resource: relations of single resources, relaxed until nothing moves."""
    by_name = {one.name: one for one in said}
    edges: list[tuple[Place, Place, int]] = []
    for one in said:
        own = list(resources_of(one))
        for left, right in itertools.pairwise(own):
            restarts = one.resources[left[2]] == "r"
            edges.append((left, right, int(restarts and (left[1] != right[1] or one.resources[right[2]] == "p"))))
        for name in before(said)[one.name]:
            for left, right in itertools.product(resources_of(by_name[name]), own):
                edges.append((left, right, int(by_name[name].resources[left[2]] == "r")))
    paths = {node: 0 for one in said for node in resources_of(one)}
    moved = True
    while moved:
        moved = False
        for left, right, weight in edges:
            if paths[right] < paths[left] + weight:
                paths[right], moved = paths[left] + weight, True
    return paths


@given(said=graphs())
@settings(max_examples=200, deadline=None)
def test_phases_of_any_graph(said: list[Said]) -> None:
    phases = cut(said)
    flat = [place(item) for phase in phases for item in phase]
    found = {place(item): number for number, phase in enumerate(phases) for item in phase}
    # Every resource once in each round, in the first phase that can have it: so there are no more phases than needed.
    assert len(flat) == len(found) == len({item.id for phase in phases for item in phase})
    assert found == longest_paths(said)
    # A restart ends every phase but the last, and serves the last resources of its phase.
    for number, phase in enumerate(phases, 1):
        restarts = [item.resource.may_restart for item in phase]
        assert restarts == sorted(restarts)
        assert any(restarts) == (number < len(phases))
    check_order(said, flat, found)


def check_order(said: Sequence[Said], flat: list[Place], found: dict[Place, int]) -> None:
    position = {one: number for number, one in enumerate(flat)}
    own = {one.name: list(resources_of(one)) for one in said}
    restarting = {one.name: [there for there in own[one.name] if one.resources[there[2]] == "r"] for one in said}
    for one in said:
        assert [there for there in flat if there[0] == one.name] == own[one.name]
        for name in before(said)[one.name]:
            pairs = itertools.product(own[name], own[one.name])
            assert all(position[left] < position[right] for left, right in pairs)
        for name in one.needs_restart_of:
            assert all(found[there] > found[restarting[name][-1]] for there in own[one.name])
        if one.rounds > 1:
            phases_of_rounds = {(number, found[one.name, number, index]) for _, number, index in own[one.name]}
            assert len(phases_of_rounds) == len({phase for _, phase in phases_of_rounds}) == one.rounds


@given(said=graphs(), random=st.randoms(use_true_random=False), data=st.data())
@settings(max_examples=50, deadline=None)
def test_no_order_of_folders_and_no_step_left_out_changes_the_rest(
    said: list[Said], random: Random, data: st.DataObject
) -> None:
    needed = {name for one in said for name in one.needs_restart_of}
    left_out = data.draw(st.sets(st.sampled_from([one.name for one in said]))) - needed
    again = list(said)
    random.shuffle(again)
    assert shown(cut(again, left_out)) == shown(cut(said, left_out))
    emptied = [one if one.name not in left_out else dataclasses.replace(one, resources="", rounds=1) for one in said]
    assert shown(cut(said, left_out)) == shown(cut(emptied))
    assert list(order_steps({one.name: one.as_step() for one in again})) == list(
        order_steps({one.name: one.as_step() for one in said})
    )
