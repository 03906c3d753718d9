"""Orders the steps and cuts them into phases, between which Windows restarts. Pure.

The resources that may restart Windows come last in their phase: one restart serves all of them. A resource that follows
one of them, in its own step or in a later step, is in a later phase.
"""

import collections
import dataclasses
import graphlib
import itertools
from collections.abc import Iterator, Mapping, Sequence

from imagegen.errors import ConfigError, Problem
from imagegen.resources.model import Resource
from imagegen.steps.evaluate import Draft, EvaluatedStep
from imagegen.steps.model import Step

TypedStep = tuple[EvaluatedStep, Sequence[tuple[Draft, Resource]]]
"""A step and its resources, each with the draft that it was made from."""


@dataclasses.dataclass(frozen=True)
class PlacedResource:
    """A resource in its phase, and its step."""

    step: Step
    draft: Draft
    resource: Resource
    round: int

    @property
    def id(self) -> str:
        name = f"{self.step.name}/{self.resource.kind}:{self.resource.label}"
        return f"{name} (round {self.round})" if self.step.meta.rounds > 1 else name

    @property
    def repeated(self) -> bool:
        """Whether a later round has it again."""
        return self.round < self.step.meta.rounds

    def problem(self, message: str, hint: str) -> Problem:
        """A problem at its place in resources.yml."""
        return self.step.resources.problem(self.draft.path, message, hint)


def order_steps(steps: Mapping[str, Step]) -> dict[str, frozenset[str]]:
    """The steps in order, each with the names of all steps that it must follow. Equal steps are ordered by name."""
    direct = {name: sorted({*steps[name].meta.after, *steps[name].meta.needs_restart_of}) for name in sorted(steps)}
    try:
        ordered = list(graphlib.TopologicalSorter(direct).static_order())
    except graphlib.CycleError as error:
        problems = []
        for other, name in itertools.pairwise(error.args[1]):
            meta = steps[name].meta
            key, names = ("after", meta.after) if other in meta.after else ("needs_restart_of", meta.needs_restart_of)
            message = f'"{other}" itself comes after "{name}"'
            problems.append(steps[name].described.problem((key, names.index(other)), message, "remove one of them"))
        raise ConfigError(
            f"these steps form a cycle: {', '.join(sorted(set(error.args[1])))}", problems=problems
        ) from None
    earlier: dict[str, frozenset[str]] = {}
    for name in ordered:
        earlier[name] = frozenset(direct[name]).union(*(earlier[other] for other in direct[name]))
    # A step follows more steps than any step before it, so their number gives a valid order.
    return dict(sorted(earlier.items(), key=lambda item: (len(item[1]), item[0])))


def find_wrong_restarts(steps: Sequence[TypedStep]) -> Iterator[Problem]:
    """A problem for each `needs_restart_of` and `rounds` that needs a restart which this plan does not have."""
    restarting = {item.step.name: [resource.may_restart for _, resource in resources] for item, resources in steps}
    for step in (item.step for item, _ in steps):
        for index, needed in enumerate(step.meta.needs_restart_of):
            if not any(restarting.get(needed, ())):
                message = f'no resource of step "{needed}" in this plan may restart Windows'
                hint = "remove it; use `after` where only the order matters"
                yield step.described.problem(("needs_restart_of", index), message, hint)
        own = restarting[step.name]
        if step.meta.rounds > 1 and own and not (own[-1] and own == sorted(own)):
            message = "a step with rounds must end with the resources that may restart Windows"
            hint = "move the other resources above them, or into another step"
            yield step.described.problem(("rounds",), message, hint)


def cut_phases(steps: Sequence[TypedStep]) -> list[list[PlacedResource]]:
    """The fewest phases for steps in their order. Each resource is in the first phase that can have it."""
    phases: dict[int, list[PlacedResource]] = collections.defaultdict(list)
    # By step: the first phase for the steps after it.
    following: dict[str, int] = {}
    for item, resources in steps:
        number = max((following[name] for name in item.earlier if name in following), default=0)
        for round_number in range(1, item.step.meta.rounds + 1):
            restarts = False
            for draft, resource in resources:
                number += restarts and not resource.may_restart
                restarts = resource.may_restart
                phases[number].append(PlacedResource(item.step, draft, resource, round_number))
            number += restarts
        following[item.step.name] = number
    # The sort is stable: it keeps the order of the steps.
    cut = [sorted(phases[number], key=lambda placed: placed.resource.may_restart) for number in sorted(phases)]
    # The machine can test the whole plan and report only after its last restart.
    return [*cut, []] if cut and cut[-1][-1].resource.may_restart else cut
