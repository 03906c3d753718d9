"""Applies the config's policy for downloads: mirror and allowed hosts. Pure."""

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


def apply_mirror(step: EvaluatedStep, config: ImageConfig) -> EvaluatedStep:
    """The step with its public URLs changed to those of the mirror. Overrides are not changed."""
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
    """A problem for each host that the policy does not allow, with its artifacts."""
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
        message = f"{host} is not an allowed host, but {', '.join(sorted(names))} would be downloaded from it"
        hint = (
            f"set artifacts.mirror, or {', '.join(sorted(overrides[host]))}, or add the host to artifacts.allowed_hosts"
        )
        problem = document.problem(("artifacts", "allowed_hosts"), message, hint)
        problems.append(dataclasses.replace(problem, rule="host-allowed"))
    return problems
