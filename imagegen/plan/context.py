"""Evaluates the steps of a settled spec with the values that they may read. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from imagegen.artifacts.request import ArtifactRequest, Override
from imagegen.catalog.facts import paths
from imagegen.errors import ConfigError
from imagegen.plan.phases import order_steps
from imagegen.steps.evaluate import EvaluatedStep, applies, evaluate_step
from imagegen.steps.model import Step

if TYPE_CHECKING:
    from imagegen.config.model import ImageConfig
    from imagegen.settle.spec import Spec

# The sections about the content of the image. Steps may read only these.
_SECTIONS = {
    *("windows", "kubernetes", "runtime", "cni", "kube_proxy", "cloudbase_init", "host_names", "ssh", "wins"),
    *("csi_proxy", "gmsa", "credential_providers", "images", "executables", "kubeadm_scripts", "proxy"),
}


def step_context(spec: Spec) -> dict[str, object]:
    """All values that a step's `reads` may name."""
    sections = spec.config.model_dump(mode="json", include=_SECTIONS)
    own_lists = {"plugins": list(spec.plugins), "metadata_services": list(spec.metadata_services)}
    return {
        **sections,
        "cloudbase_init": sections["cloudbase_init"] | own_lists,
        "target": spec.provider,
        "step_options": spec.config.step_options,
        "paths": {**paths(), "kubernetes": spec.config.kubernetes.install_path},
        "facts": dataclasses.asdict(spec.facts),
    }


def evaluate_steps(spec: Spec, steps: Mapping[str, Step]) -> tuple[EvaluatedStep, ...]:
    """All steps that apply, in order, evaluated."""
    context = step_context(spec)
    overrides = {
        name: Override(override) if isinstance(override, str) else Override(override.url, override.sha256)
        for name, override in spec.config.overrides.items()
    }
    evaluated = []
    for name, earlier in order_steps(steps).items():
        if applies(steps[name], context):
            step = evaluate_step(steps[name], context, overrides)
            requests = {key: _mirrored(request, spec.config) for key, request in step.requests.items()}
            evaluated.append(dataclasses.replace(step, requests=requests, earlier=earlier))
    return tuple(evaluated)


def _mirrored(request: ArtifactRequest, config: ImageConfig) -> ArtifactRequest:
    """The request with its public URL changed to that of the mirror. Overrides are not changed."""
    mirror = config.artifacts.mirror
    if mirror is None or request.override in config.overrides:
        return request
    return dataclasses.replace(request, url=f"{mirror.rstrip('/')}/{request.url.removeprefix('https://')}")


def artifact_requests(evaluated: tuple[EvaluatedStep, ...]) -> dict[str, ArtifactRequest]:
    """All artifacts that the steps download, by name."""
    return {name: request for step in evaluated for name, request in step.requests.items()}


def components_of(evaluated: Iterable[EvaluatedStep]) -> dict[str, str]:
    """The version of every component that the steps install, for tags, manifest and `imagegen plan`."""
    components: dict[str, str] = {}
    for step in evaluated:
        for name, version in step.components:
            if components.setdefault(name, version) != version:
                message = f"{name} has two versions: {components[name]} and {version}"
                raise ConfigError(
                    "the plan is not valid",
                    problems=[step.step.described.problem((), message, "give each component one version")],
                )
    return components
