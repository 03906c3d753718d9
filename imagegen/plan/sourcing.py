"""Where the config's policy lets artifacts come from. Pure."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

from imagegen.config.sources import plain_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document
    from imagegen.errors import Problem
    from imagegen.steps.evaluate import EvaluatedStep


def sourced(step: EvaluatedStep, config: ImageConfig) -> EvaluatedStep:
    """The step with its public addresses moved to the mirror; what is overridden has its own address already."""
    mirror = config.artifacts.mirror
    if mirror is None:
        return step
    requests = {
        name: request
        if request.override in config.overrides
        else dataclasses.replace(request, url=_mirrored(mirror, request.url))
        for name, request in step.requests.items()
    }
    return dataclasses.replace(step, requests=requests)


def _mirrored(mirror: str, url: str) -> str:
    return f"{mirror.rstrip('/')}/{url.removeprefix('https://')}"


def refused_hosts(config: ImageConfig, evaluated: Iterable[EvaluatedStep], document: Document) -> list[Problem]:
    """Each host that the policy does not allow, with the artifacts that would come from it."""
    allowed = {plain_host(host) for host in config.artifacts.allowed_hosts}
    refused: dict[str, set[str]] = {}
    overrides: dict[str, set[str]] = {}
    for request in (request for step in evaluated for request in step.requests.values()):
        host = plain_host(urllib.parse.urlsplit(request.url).netloc)
        if host not in allowed:
            refused.setdefault(host, set()).add(request.name)
            overrides.setdefault(host, set()).add(f"overrides.{request.override}")
    problems = []
    for host, names in sorted(refused.items()):
        message = f"{', '.join(sorted(names))} would come from {host}, which is not among them"
        hint = f"set artifacts.mirror, or {', '.join(sorted(overrides[host]))}; or allow the host"
        problem = document.problem(("artifacts", "allowed_hosts"), message, hint)
        problems.append(dataclasses.replace(problem, rule="host-allowed"))
    return problems
