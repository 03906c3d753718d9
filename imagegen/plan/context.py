"""A config and a target in; what its steps may read out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagegen.artifacts.override import Override
from imagegen.catalog.facts import Versions, facts_for, paths
from imagegen.errors import ConfigError
from imagegen.steps.evaluate import EvaluatedStep, evaluate_step
from imagegen.steps.model import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.config.model import ImageConfig
    from imagegen.steps.model import Step


def versions_of(config: ImageConfig) -> Versions:
    """The versions that the catalogue is asked about."""
    return Versions(
        windows=config.windows.release,
        edition=config.windows.edition,
        kubernetes=config.kubernetes.version,
        containerd=config.runtime.containerd.version,
        cloudbase_init=config.cloudbase_init.version,
    )


def evaluate_steps(config: ImageConfig, target: str, steps: Mapping[str, Step]) -> tuple[EvaluatedStep, ...]:
    """Every step in the order in which it is carried out."""
    context: dict[str, Any] = config.model_dump(mode="json", exclude={"targets", "overrides"})
    context |= {"target": target, "paths": paths(), "facts": facts_for(versions_of(config), target)}
    overrides = {
        name: Override(asked) if isinstance(asked, str) else Override(asked.url, asked.sha256)
        for name, asked in config.overrides.items()
    }
    return tuple(evaluate_step(steps[name], context, overrides) for name in _in_order(steps))


def _in_order(steps: Mapping[str, Step]) -> list[str]:
    """By phase, then after what a step names, then by name."""
    ordered: list[str] = []
    for phase in PHASES:
        left = sorted(name for name, step in steps.items() if step.meta.phase == phase)
        while left:
            ready = [name for name in left if not set(steps[name].meta.after) & set(left)]
            if not ready:
                message = "waits for a step that waits for it"
                problems = [steps[name].described.problem(("after",), message, "drop one of them") for name in left]
                raise ConfigError(f"the steps {', '.join(left)} wait for one another", problems=problems)
            ordered.append(ready[0])
            left.remove(ready[0])
    return ordered


def artifact_requests(evaluated: tuple[EvaluatedStep, ...]) -> dict[str, ArtifactRequest]:
    """Everything that the steps download, by name."""
    return {name: request for step in evaluated for name, request in step.requests.items()}
