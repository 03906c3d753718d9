"""Where the config's policy lets artifacts come from. Pure."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

from imagegen.artifacts.request import shown_url

if TYPE_CHECKING:
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


def refused_hosts(config: ImageConfig, evaluated: tuple[EvaluatedStep, ...], document: Document) -> list[Problem]:
    """Each artifact whose address names a host that the policy does not allow."""
    allowed = set(config.artifacts.allowed_hosts)
    if not allowed:
        return []
    problems = []
    for step in evaluated:
        for request in step.requests.values():
            host = urllib.parse.urlsplit(request.url).netloc
            if host not in allowed:
                message = f"{request.name} would come from {shown_url(request.url)}, and {host} is not allowed"
                hint = f"set overrides.{request.override} or artifacts.mirror, or allow the host"
                problems.append(document.problem(("artifacts", "allowed_hosts"), message, hint))
    return problems
