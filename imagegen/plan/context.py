"""A config and a target in; what its steps may read, and the steps evaluated, out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagegen.artifacts.override import Override
from imagegen.catalog.facts import Versions, facts_for, paths
from imagegen.errors import ConfigError
from imagegen.plan import sourcing
from imagegen.steps.evaluate import EvaluatedStep, applies, evaluate_step
from imagegen.steps.model import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document
    from imagegen.errors import Problem
    from imagegen.steps.model import Step

# The sections that say what is on the machine: a step may read these and no others.
_SECTIONS = {
    *("windows", "kubernetes", "runtime", "cni", "kube_proxy", "cloudbase_init", "host_names", "ssh", "wins"),
    *("csi_proxy", "gmsa", "credential_providers", "images", "executables", "kubeadm_scripts", "proxy"),
}


def versions_of(config: ImageConfig) -> Versions:
    """The versions that the catalogue is asked about."""
    return Versions(
        windows=config.windows.release,
        edition=config.windows.edition,
        kubernetes=config.kubernetes.version,
        containerd=config.runtime.containerd.version if config.runtime.containerd else None,
        cloudbase_init=config.cloudbase_init.version,
    )


def image_versions(config: ImageConfig) -> dict[str, str]:
    """The versions that an image is tagged with."""
    runtime = config.runtime
    versions = {"kubernetes": config.kubernetes.version, "cloudbase_init": config.cloudbase_init.version}
    if runtime.containerd:
        versions["containerd"] = runtime.containerd.version
    return versions


def step_context(config: ImageConfig, target: str) -> dict[str, Any]:
    """Everything that a step's `reads` may name."""
    sections = config.model_dump(mode="json", include=_SECTIONS)
    return {
        **sections,
        "target": target,
        "paths": {**paths(), "kubernetes": config.kubernetes.install_path},
        "facts": _facts(config, target),
    }


def _facts(config: ImageConfig, target: str) -> dict[str, Any]:
    """The catalogue's facts, where the config does not say otherwise."""
    facts = facts_for(versions_of(config), target)
    first_boot = facts["cloudbase_init"]
    asked_plugins = getattr(config.cloudbase_init.plugins, target)
    asked_services = getattr(config.cloudbase_init.metadata_services, target)
    return {
        **facts,
        "pause": config.kubernetes.pause_image or facts["pause"],
        "cloudbase_init": {
            **first_boot,
            "plugins": asked_plugins or first_boot["plugins"],
            "metadata_service": ",".join(asked_services) if asked_services else first_boot["metadata_service"],
        },
    }


def evaluate_steps(config: ImageConfig, target: str, steps: Mapping[str, Step]) -> tuple[EvaluatedStep, ...]:
    """Every step that applies, in the order in which it is carried out."""
    context = step_context(config, target)
    overrides = {
        name: Override(asked) if isinstance(asked, str) else Override(asked.url, asked.sha256)
        for name, asked in config.overrides.items()
    }
    return tuple(
        sourcing.sourced(evaluate_step(steps[name], context, overrides), config)
        for name in _in_order(steps)
        if applies(steps[name], context)
    )


def refused_hosts(config: ImageConfig, document: Document, steps: Mapping[str, Step]) -> list[Problem]:
    """Every address, on any target, that the config's policy does not allow."""
    evaluated = [step for target in config.targets.named() for step in evaluate_steps(config, target, steps)]
    return sourcing.refused_hosts(config, evaluated, document)


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
