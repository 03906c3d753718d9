"""Makes the plan for one target from a settled spec, its lock and the content. Pure: no clock, no network.

The steps are cut into phases, between which Windows restarts. The resources that may restart Windows come last in their
phase: one restart serves all of them. A resource that follows one of them, in its own step or in a later step, is in a
later phase.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

import pydantic

from imagegen.base.errors import ERROR, ConfigError, Problem
from imagegen.catalog.facts import stock_paths
from imagegen.config.problems import model_problems
from imagegen.fetch.lock import Lock
from imagegen.fetch.policy import download_credentials
from imagegen.fetch.request import host_of
from imagegen.oci.registry import tarball_requests
from imagegen.plan.context import (
    artifact_requests,
    components_of,
    credential_variables,
    download_proxy,
    image_requests,
)
from imagegen.plan.fitting import UnfitError, fit
from imagegen.plan.model import (
    BuildPart,
    BuildPlan,
    ImagePart,
    Phase,
    PlannedArtifact,
    PlannedResource,
    PlannedStep,
    StepNotes,
)
from imagegen.plan.open_folders import find_open_folders
from imagegen.plan.pins import pin_image
from imagegen.plan.settings import stated_settings
from imagegen.steps.effects import EFFECTS, TESTED_KINDS
from imagegen.steps.evaluate import Draft, EvaluatedStep
from imagegen.steps.kinds import ENGINE_MODULE, KINDS
from imagegen.steps.model import Step
from imagegen.steps.resource import FIRST_BOOT, Resource
from imagegen.trust.policy import find_exempt, find_unchecked, plan_signatures, signature_requests

if TYPE_CHECKING:
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.oci.names import ImageRequest
    from imagegen.providers.provider import Provider
    from imagegen.settle.spec import Spec

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

    @property
    def until(self) -> str | None:
        """How long it stays as planned, if not for ever. A node does not show what sealing removes."""
        return self.draft.until if self.resource.outlives_sealing else FIRST_BOOT

    def problem(self, message: str, hint: str) -> Problem:
        """A problem at its place in resources.yml."""
        return self.step.resources.problem(self.draft.path, message, hint)


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


# Time for the engine's own work in a phase, besides the time of its steps.
_PHASE_MARGIN_S = 600


@dataclasses.dataclass(frozen=True)
class Decision:
    """A plan, the files whose digests it has, and the templates of its tree."""

    plan: BuildPlan
    bundle: Mapping[str, bytes]
    scripts: Mapping[str, bytes]
    templates: Mapping[str, str]
    """The templates of the tree by path. The rendered tree is not part of the image."""
    helpers: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """Scripts of the tree that no image has seen, because they run only after a build has failed."""


def resolve(
    spec: Spec,
    lock: Lock,
    evaluated: tuple[EvaluatedStep, ...],
    guest: Mapping[str, bytes],
    scripts: Mapping[str, bytes],
    templates: Mapping[str, str],
) -> Decision:
    """`guest` are the engine's files and the kinds' scripts, `scripts` the cloud's scripts and the entry script."""
    config = spec.config
    base = lock.base_images[spec.target]
    images = image_requests(evaluated, spec, with_tarballs=True)
    requests = artifact_requests(evaluated) | tarball_requests(images, lock.images)
    phases = _phases(evaluated, lock, requests, images, spec.provider, guest)
    notes = {item.step.name: _notes(item, config.timeouts.steps) for item in evaluated}
    signed = signature_requests(config, evaluated)
    bundle = needed_files(guest, _kinds_of(phases)) | {
        path: text for step in evaluated for path, text in step.texts.items()
    }
    image = ImagePart(
        provider=spec.provider,
        windows=config.windows.model_dump(include={"release", "edition"}) | {"build": spec.facts.windows_build},
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
        target=spec.target,
        base_place=base.place,
        downloads={name: request.url for name, request in sorted(requests.items())},
        steps=notes,
        phase_timeouts_s={
            phase.name: _PHASE_MARGIN_S + sum(notes[step.name].timeout_s for step in phase.steps) for phase in phases
        },
        timeouts_min=config.timeouts.model_dump(include={"winrm", "restart", "generalise"}),
        stated=stated_settings(spec),
        proxy=download_proxy(config.proxy),
        registry_credentials=credential_variables(config),
        download_credentials=download_credentials(config),
        signatures=plan_signatures(signed, lock.artifacts),
        unsigned=find_exempt(signed, lock.artifacts, (one for phase in phases for one in phase.resources())),
        all_signed=spec.facts.all_signed,
    )
    return Decision(BuildPlan(image, build, spec.settings, config.timeouts.publish), bundle, scripts, templates)


def _notes(item: EvaluatedStep, minutes: Mapping[str, int]) -> StepNotes:
    own = minutes.get(item.step.name)
    return StepNotes(item.step.meta.summary, _time_limit(item) if own is None else own * 60)


def _time_limit(item: EvaluatedStep) -> int:
    """The step's own limit, and the limits of resources that have one."""
    own = (draft.fields.get("timeout_s") for draft in item.drafts if draft.kind == "script")
    # A value of another type is reported with the resource.
    return item.step.meta.timeout_s + sum(seconds for seconds in own if isinstance(seconds, int))


def find_missing(spec: Spec, lock: Lock | None, evaluated: tuple[EvaluatedStep, ...], provider: Provider) -> list[str]:
    """The artifacts and base images of this config that the lock does not have."""
    lock = lock or Lock()
    request = provider.base_request(spec.settings, spec.offered_image)
    base = lock.base_images.get(spec.target)
    missing = [] if base is not None and base.request == request else [f"the base image for {spec.target}"]
    images = image_requests(evaluated, spec)
    known = {name for name in images.keys() & lock.images.keys() if lock.images[name].answers(images[name])}
    tarballs = tarball_requests(images, {name: lock.images[name] for name in known})
    wanted = artifact_requests(evaluated) | tarballs
    have = {name for name in wanted.keys() & lock.artifacts.keys() if lock.artifacts[name].answers(wanted[name])}
    hosts = {host_of(wanted[name].url): None for name in wanted if name in have} if spec.authorities else {}
    unchecked = have & find_unchecked(signature_requests(spec.config, evaluated), lock.artifacts)
    return [
        *missing,
        *(name for name in wanted if name not in have),
        *(f"the signatures of {name}" for name in wanted if name in unchecked),
        *(f"the certificate of {host}" for host in hosts if host not in lock.ca_hosts),
        *(name for name in images if name not in known),
    ]


def needed_files(guest: Mapping[str, bytes], kinds: Collection[str]) -> dict[str, bytes]:
    """The engine's files and the scripts of these kinds, so that other kinds do not change the image."""
    scripts = {f"kinds/{kind}.ps1" for kind in kinds}
    return {path: data for path, data in guest.items() if not path.startswith("kinds/") or path in scripts}


def _kinds_of(phases: Iterable[Phase]) -> set[str]:
    """The kinds whose scripts the engine needs: those of the resources and of the effects that it tests."""
    resources = [resource for phase in phases for resource in phase.resources()]
    tested = (effect.kind for one in resources if one.kind in TESTED_KINDS for effect in one.effects)
    return {*(resource.kind for resource in resources), *tested}


def _phases(
    evaluated: tuple[EvaluatedStep, ...],
    lock: Lock,
    requests: Mapping[str, ArtifactRequest],
    images: Mapping[str, ImageRequest],
    provider: str,
    guest: Mapping[str, bytes],
) -> tuple[Phase, ...]:
    problems: list[Problem] = []
    typed = [(step, tuple(_resources(step, lock, requests, images, guest, problems))) for step in evaluated]
    cut = cut_phases(typed)
    placed = [item for phase in cut for item in phase]
    # A resource that is missing here makes no path, and that says nothing about those which need it.
    missing = () if problems else _find_missing_paths(placed, stock_paths(provider))
    problems += [
        *find_wrong_restarts(typed),
        *(problem for problem in find_open_folders(evaluated) if problem.severity == ERROR),
        *missing,
        *_find_duplicates(placed),
    ]
    if problems:
        raise ConfigError("the plan is not valid", problems=problems)
    return tuple(plan_phase(number, phase) for number, phase in enumerate(cut, 1))


def plan_phase(number: int, phase: Sequence[PlacedResource]) -> Phase:
    """A phase of the plan. Consecutive resources of one step are one entry."""
    steps = tuple(
        PlannedStep(name, repeated, tuple(_planned(item) for item in placed))
        for (name, repeated), placed in itertools.groupby(phase, key=lambda item: (item.step.name, item.repeated))
    )
    return Phase(f"phase-{number}", restart=any(item.resource.may_restart for item in phase), steps=steps)


def _planned(item: PlacedResource) -> PlannedResource:
    planned = item.resource.planned()
    return PlannedResource(item.id, planned.kind, planned.fields(), item.until, item.draft.effects)


def _resources(
    step: EvaluatedStep,
    lock: Lock,
    requests: Mapping[str, ArtifactRequest],
    images: Mapping[str, ImageRequest],
    guest: Mapping[str, bytes],
    problems: list[Problem],
) -> Iterator[tuple[Draft, Resource]]:
    document = step.step.resources
    for draft in step.drafts:
        fields = dict(draft.fields)
        if draft.kind == "image":
            missing_image = pin_image(fields, lock, images)
            if missing_image:
                problems.append(document.problem(draft.path, *missing_image))
                continue
        name = str(fields.get("artifact"))
        artifact = lock.artifacts.get(name)
        if fields.get("source") == ENGINE_MODULE:
            fields["sha256"] = _sha256(guest[ENGINE_MODULE])
        try:
            fitted = fit(draft.kind, fields, artifact, requests[name]) if artifact else [(draft.kind, fields)]
        except UnfitError as error:
            problems.append(document.problem((*draft.path, error.key), str(error), error.hint))
            continue
        for kind, final in fitted:
            try:
                yield dataclasses.replace(draft, kind=kind), KINDS[kind].model_validate(final)
            except pydantic.ValidationError as error:
                problems += model_problems(error, document, KINDS[kind], draft.path)


def _find_missing_paths(placed: Iterable[PlacedResource], stock: Iterable[str]) -> Iterator[Problem]:
    """A problem for each path that no earlier resource makes. On Windows this would fail hours later."""
    existing = {path.lower() for path in stock}
    for item in placed:
        for path in item.resource.needs():
            if path.lower() not in existing and len(PureWindowsPath(path).parts) > 1:
                hint = "add a directory, file, archive or package above that makes it"
                yield item.problem(f"nothing before {item.id} makes {path}", hint)
        existing |= {path.lower() for path in (*item.resource.makes(), *_made_by_script(item.draft))}


def _made_by_script(draft: Draft) -> Iterator[str]:
    for effect in draft.effects if draft.kind in TESTED_KINDS else ():
        yield from EFFECTS[effect.kind].model_validate(effect.fields).makes()


def _find_duplicates(placed: Iterable[PlacedResource]) -> Iterator[Problem]:
    seen: set[str] = set()
    for item in placed:
        if item.id.lower() in seen:
            yield item.problem(f"{item.id} is in the plan twice", "keep one of them")
        seen.add(item.id.lower())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
