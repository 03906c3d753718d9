"""Applies the policy for downloads to requests: mirror, published digests, credentials, hosts. Pure."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from imagegen.base.hosts import HostPolicy, plain_host
from imagegen.catalog.products import find_product
from imagegen.fetch.request import PublishedDigest
from imagegen.steps.image_name import DOCKER_HUB, ImageName

if TYPE_CHECKING:
    from imagegen.base.errors import Problem
    from imagegen.config.model import ImageConfig
    from imagegen.config.yaml import Document
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.oci.names import ImageRequest


def with_mirror(request: ArtifactRequest, config: ImageConfig) -> ArtifactRequest:
    """The request with its public URL changed to that of the mirror. URLs of the config are not changed."""
    mirror = config.artifacts.mirror
    if mirror is None or request.own:
        return request
    return dataclasses.replace(request, url=f"{mirror.rstrip('/')}/{request.url.removeprefix('https://')}")


def with_publishing(request: ArtifactRequest) -> ArtifactRequest:
    """The request with the address of its published digest, and the day of its release.

    A mirror may lack the digest. Of a URL of the config, the catalogue knows nothing."""
    product = find_product(request.product)
    if request.own or product is None:
        return request
    address = product.published_digest(request.url, request.version)
    digest = PublishedDigest(address, request.url == request.published) if address else None
    return dataclasses.replace(request, digest=digest, released=product.release_day(request.version))


def host_policy(config: ImageConfig) -> HostPolicy:
    """The hosts from which imagegen may download."""
    policy = config.artifacts
    return HostPolicy.of(_with_docker_hub(policy.allowed_hosts), _with_docker_hub(policy.denied_hosts))


def _with_docker_hub(hosts: list[str]) -> list[str]:
    """The hosts; with Docker Hub the host of its registry, which has another name."""
    return [*hosts, ImageName.parse(DOCKER_HUB).host] if DOCKER_HUB in map(plain_host, hosts) else hosts


def download_credentials(config: ImageConfig) -> dict[str, dict[str, str]]:
    """For each place with private artifacts the way to sign in, by the keys of the config. A place is a host, or a host
    and a path."""
    return {
        plain_host(one.host) + (one.path or ""): one.model_dump(exclude={"host", "path"}, exclude_none=True)
        for one in config.artifacts.credentials
    }


def host_of(url: str) -> str:
    """The host of a URL of a config, with its port."""
    return urllib.parse.urlsplit(url).netloc


def refused_hosts(config: ImageConfig, requests: Iterable[ArtifactRequest], document: Document) -> Iterator[Problem]:
    """A problem for each host that the policy does not allow, with its artifacts."""
    policy = host_policy(config)
    refused: dict[str, list[ArtifactRequest]] = {}
    for request in requests:
        host = plain_host(host_of(request.url))
        if not policy.is_allowed(host):
            refused.setdefault(host, []).append(request)
    for host, of_host in sorted(refused.items()):
        names = ", ".join(sorted({request.name for request in of_host}))
        advice = f"set artifacts.mirror, or {', '.join(sorted({request.key for request in of_host}))}"
        if not policy.is_denied(host):
            advice += ", or add the host to artifacts.allowed_hosts"
        yield _problem(document, policy, host, f"{names} would be downloaded from it", advice)


def refused_registries(
    config: ImageConfig, requests: Mapping[str, ImageRequest], document: Document
) -> Iterator[Problem]:
    """A problem for each registry that the policy does not allow, if none of its mirrors is allowed either."""
    policy = host_policy(config)
    refused: dict[str, list[str]] = {}
    for request in requests.values():
        if not request.mirror and not request.asks_registry and not request.mirrors:
            refused.setdefault(request.name.registry, []).append(str(request.name))
    for registry, names in sorted(refused.items()):
        mirror = "an allowed mirror of it to runtime.containerd.registry_mirrors"
        allow = "" if policy.is_denied(registry) else f"{registry} to artifacts.allowed_hosts, or "
        yield _problem(
            document, policy, registry, f"{', '.join(names)} would be looked up there", f"add {allow}{mirror}"
        )


def _problem(document: Document, policy: HostPolicy, host: str, use: str, advice: str) -> Problem:
    key, rule, fault = "allowed_hosts", "host-allowed", "not an allowed host"
    if policy.is_denied(host):
        key, rule, fault = "denied_hosts", "host-denied", "a denied host"
    problem = document.problem(("artifacts", key), f"{host} is {fault}, but {use}", advice)
    return dataclasses.replace(problem, rule=rule)
