"""Steps without a folder, for the planner's tests: `p` is a plain resource, `r` one that may restart Windows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.config.yaml import Document
from imagegen.plan.context import order_steps
from imagegen.plan.resolve import cut_phases
from imagegen.steps.evaluate import ALWAYS, Draft, EvaluatedStep
from imagegen.steps.kinds import KINDS
from imagegen.steps.model import Step, StepMeta

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from imagegen.plan.resolve import PlacedResource, TypedStep


@dataclasses.dataclass(frozen=True)
class Said:
    """What a step says of itself."""

    name: str
    resources: str = "p"
    after: tuple[str, ...] = ()
    needs_restart_of: tuple[str, ...] = ()
    rounds: int = 1
    last: bool = False

    def as_step(self) -> Step:
        meta = {
            "summary": "a step of the tests",
            "after": list(self.after),
            "needs_restart_of": list(self.needs_restart_of),
            "rounds": self.rounds,
            "last": self.last,
            "reads": [],
            "timeout_s": 60,
        }
        document = Document(f"{self.name}/meta/step.yml", meta, {(): 1})
        return Step(self.name, Path(self.name), self.name, StepMeta.model_validate(meta), document)

    def typed(self, earlier: frozenset[str]) -> TypedStep:
        kinds = {"p": "directory", "r": "feature"}
        drafts = [
            Draft(kinds[letter], _fields(self.name, letter, index), (index,))
            for index, letter in enumerate(self.resources)
        ]
        step = EvaluatedStep(self.as_step(), tuple(drafts), {}, {}, (), ALWAYS, earlier)
        return step, [(draft, KINDS[draft.kind].model_validate(draft.fields)) for draft in drafts]


def _fields(name: str, letter: str, index: int) -> dict[str, str]:
    return {"path": rf"C:\{name}\{index}"} if letter == "p" else {"name": f"{name}-{index}"}


def typed_steps(said: Iterable[Said], left_out: Collection[str] = ()) -> list[TypedStep]:
    """In order, without the steps that are not in the plan."""
    by_name = {one.name: one for one in said}
    earlier = order_steps({name: one.as_step() for name, one in by_name.items()})
    return [by_name[name].typed(before) for name, before in earlier.items() if name not in left_out]


def cut(said: Iterable[Said], left_out: Collection[str] = ()) -> list[list[PlacedResource]]:
    return cut_phases(typed_steps(said, left_out))
