"""A settled spec, its lock and the content in; the whole decision for its target out. Pure: no clock, no network."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Any

import pydantic

from imagegen.artifacts.lock import Lock
from imagegen.catalog.facts import stock_paths
from imagegen.documents.problems import model_problems
from imagegen.errors import ConfigError
from imagegen.plan.context import artifact_requests, components_of
from imagegen.plan.model import (
    BuildPart,
    BuildPlan,
    ImagePart,
    Phase,
    PlannedArtifact,
    PlannedResource,
    PlannedStep,
    PublishPart,
    StepNotes,
)
from imagegen.plan.proxy import download_proxy
from imagegen.resources.kinds import KINDS
from imagegen.steps.model import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imagegen.artifacts.lock import LockedArtifact
    from imagegen.config.model import ImageConfig
    from imagegen.errors import Problem
    from imagegen.providers import Provider
    from imagegen.resources.model import Resource
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import Draft, EvaluatedStep

# Time for the engine's own work in a phase, beside its steps'.
_PHASE_MARGIN_S = 600


@dataclasses.dataclass(frozen=True)
class Decision:
    """A plan, the bytes that it has the digests of, and the templates of its tree."""

    plan: BuildPlan
    bundle: Mapping[str, bytes]
    scripts: Mapping[str, bytes]
    templates: Mapping[str, str]
    """Of the tree, by their path; what they are rendered to is no part of an image."""


def resolve(
    spec: Spec,
    lock: Lock,
    evaluated: tuple[EvaluatedStep, ...],
    provider: Provider,
    guest: Mapping[str, bytes],
    scripts: Mapping[str, bytes],
    templates: Mapping[str, str],
) -> Decision:
    """`guest` are the engine's static files with the script of every kind, `scripts` the cloud's own and the entry."""
    config, settings = spec.config, spec.settings
    base = lock.base_images[spec.target]
    requests = artifact_requests(evaluated)
    phases = _phases(evaluated, lock, spec.target)
    texts = {path: text for step in evaluated for path, text in step.texts.items()}
    bundle = {**_needed(guest, phases), **texts}
    image = ImagePart(
        target=spec.target,
        windows={
            "release": config.windows.release,
            "edition": config.windows.edition,
            "build": spec.facts.windows_build,
        },
        base=base.identity,
        versions=components_of(evaluated),
        phases=phases,
        artifacts={
            name: PlannedArtifact(lock.artifacts[name].sha256, lock.artifacts[name].size) for name in sorted(requests)
        },
        files={path: _sha256(data) for path, data in sorted(bundle.items())},
        scripts={path: _sha256(data) for path, data in sorted(scripts.items())},
    )
    build = BuildPart(
        name=config.name,
        base_place=base.place,
        settings=provider.build_settings(settings),
        downloads={name: request.url for name, request in sorted(requests.items())},
        steps={step.step.name: StepNotes(step.step.meta.summary, step.step.meta.timeout_s) for step in evaluated},
        phase_timeouts_s={phase.name: _phase_timeout_s(phase.name, config, evaluated) for phase in phases},
        timeouts_min=config.timeouts.model_dump(include={"winrm", "restart", "generalise"}),
        stated=_stated(spec),
        proxy=download_proxy(config.proxy),
    )
    return Decision(
        BuildPlan(image, build, PublishPart(provider.publish_settings(settings))), bundle, scripts, templates
    )


def unanswered(spec: Spec, lock: Lock | None, evaluated: tuple[EvaluatedStep, ...], provider: Provider) -> list[str]:
    """What the lock does not answer for this config: the names of artifacts and base images to look up."""
    lock = lock or Lock()
    request = provider.base_request(spec.settings, spec.offered_image)
    base = lock.base_images.get(spec.target)
    missing = [] if base is not None and base.request == request else [f"the base image for {spec.target}"]
    for name, wanted in artifact_requests(evaluated).items():
        have = lock.artifacts.get(name)
        if have is None or not have.answers(wanted):
            missing.append(name)
    return missing


def _needed(guest: Mapping[str, bytes], phases: Iterable[Phase]) -> dict[str, bytes]:
    """The engine's files with the scripts of the plan's own kinds: a kind that no resource is of changes no image."""
    kinds = {f"kinds/{resource.kind}.ps1" for phase in phases for resource in phase.resources()}
    return {path: data for path, data in guest.items() if not path.startswith("kinds/") or path in kinds}


def _stated(spec: Spec) -> dict[str, Any]:
    config = spec.config
    return {
        "kube_proxy": config.kube_proxy,
        "host_names": config.host_names.model_dump(mode="json", include={"longest", "pool"}),
        "artifacts": {
            **config.artifacts.model_dump(mode="json", include={"allowed_hosts", "require_sha256"}),
            "pinned": _pinned(config),
        },
        "allow_eol": config.allow_eol,
        "set": dict(spec.document.sets),
    }


def _pinned(config: ImageConfig) -> dict[str, str]:
    named = {name: asked.sha256 for name, asked in config.overrides.items() if not isinstance(asked, str)}
    return {name: digest for name, digest in named.items() if digest}


def _phase_timeout_s(name: str, config: ImageConfig, evaluated: tuple[EvaluatedStep, ...]) -> int:
    asked: int | None = getattr(config.timeouts.phases, name)
    if asked is not None:
        return asked * 60
    return _PHASE_MARGIN_S + sum(step.step.meta.timeout_s for step in evaluated if step.step.meta.phase == name)


def _phases(evaluated: tuple[EvaluatedStep, ...], lock: Lock, target: str) -> tuple[Phase, ...]:
    problems: list[Problem] = []
    made = _Made(stock_paths(target))
    phases = []
    restarting: set[str] = set()
    everything: list[tuple[EvaluatedStep, Draft, Resource]] = []
    for name in PHASES:
        members = [step for step in evaluated if step.step.meta.phase == name]
        resources = {step.step.name: tuple(_resources(step, lock, problems)) for step in members}
        ordered = [(step, draft, resource) for step in members for draft, resource in resources[step.step.name]]
        everything += ordered
        problems += made.check(ordered)
        problems += _restarts_last(ordered)
        here = {step.step.name for step, _, resource in ordered if resource.may_restart}
        problems += [problem for step in members for problem in _without_restart(step, name, restarting)]
        restarting |= here
        steps = tuple(_planned(step, [resource for _, resource in resources[step.step.name]]) for step in members)
        if steps:
            phases.append(Phase(name, bool(here), steps))
    problems += _twice(everything)
    if problems:
        raise ConfigError("the plan does not hold together", problems=problems)
    return tuple(phases)


def _planned(step: EvaluatedStep, resources: Iterable[Resource]) -> PlannedStep:
    name = step.step.name
    planned = tuple(PlannedResource(f"{name}/{item.kind}:{item.label}", item.kind, item.fields()) for item in resources)
    return PlannedStep(name, planned)


def _resources(step: EvaluatedStep, lock: Lock, problems: list[Problem]) -> Iterator[tuple[Draft, Resource]]:
    document = step.step.resources
    for draft in step.drafts:
        fields = dict(draft.fields)
        artifact = lock.artifacts.get(str(fields.get("artifact")))
        if draft.kind == "archive" and artifact is not None:
            wanted = fields.pop("expect", None)
            missing, fields["members"] = _members(artifact, int(fields.get("strip", 0)), wanted)
            if missing:
                has = ", ".join(sorted(artifact.members or {})[:12])
                message = f"the archive {fields['artifact']} does not hold {', '.join(missing)}"
                problems.append(document.problem((*draft.path, "expect"), message, f"it holds {has}"))
                continue
        if draft.kind == "file" and "sha256" not in fields and artifact is not None:
            fields["sha256"] = artifact.sha256
        kind = KINDS[draft.kind]
        try:
            yield draft, kind.model_validate(fields)
        except pydantic.ValidationError as error:
            problems += model_problems(error, document, kind, draft.path)


def _members(artifact: LockedArtifact, strip: int, wanted: list[str] | None) -> tuple[list[str], list[dict[str, Any]]]:
    """The files that an archive leaves in its folder, and which of the wanted ones it does not."""
    left = {}
    for path, digest in (artifact.members or {}).items():
        parts = path.split("/")[strip:]
        if parts:
            left["\\".join(parts)] = digest
    names = sorted(left) if wanted is None else wanted
    return [name for name in names if name not in left], [
        {"path": name, "sha256": left[name]} for name in names if name in left
    ]


class _Made:
    """Paths that are there, so that a path which nothing made is found on the host."""

    def __init__(self, stock: Iterable[str]) -> None:
        self._paths = {path.lower() for path in stock}

    def check(self, ordered: list[tuple[EvaluatedStep, Draft, Resource]]) -> Iterator[Problem]:
        for step, draft, resource in ordered:
            for path in resource.needs():
                if path.lower() not in self._paths and len(PureWindowsPath(path).parts) > 1:
                    message = f"nothing before {step.step.name}/{resource.kind}:{resource.label} makes {path}"
                    yield step.step.resources.problem(
                        draft.path, message, "make it with a directory, file, archive or package above"
                    )
            self._paths |= {path.lower() for path in resource.makes()}


def _restarts_last(ordered: list[tuple[EvaluatedStep, Draft, Resource]]) -> Iterator[Problem]:
    seen: str | None = None
    for step, draft, resource in ordered:
        name = f"{step.step.name}/{resource.kind}:{resource.label}"
        if resource.may_restart:
            seen = name
        elif seen is not None:
            message = f"{name} comes after {seen}, which may need a restart, in one phase"
            yield step.step.resources.problem(draft.path, message, "move it to a later phase or above")


def _without_restart(step: EvaluatedStep, phase: str, restarting: set[str]) -> Iterator[Problem]:
    for index, needed in enumerate(step.step.meta.needs_restart_of):
        if needed not in restarting:
            message = f"presupposes the restart of {needed!r}, which does not come before phase {phase!r}"
            yield step.step.described.problem(("needs_restart_of", index), message, "move it to a later phase")


def _twice(everything: Iterable[tuple[EvaluatedStep, Draft, Resource]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for step, draft, resource in everything:
        name = f"{step.step.name}/{resource.kind}:{resource.label}"
        if name.lower() in seen:
            yield step.step.resources.problem(draft.path, f"{name} is in the plan twice", "keep one of them")
        seen.add(name.lower())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
