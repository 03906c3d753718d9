"""What must be so about Docker, and about what starts pods with it."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say
from imagegen.boot.facts import Finding, NodeFacts

# Without cri-dockerd, kubelet asks Docker itself: that is part of the check of Docker.
_KUBELET: Final = "kubelet"


def _docker(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.docker
    if found is None:
        return
    if found.failure:
        yield say(f"Docker does not answer: {found.failure}")
    if not found.version:
        yield say(f"the image has no dockerd.exe, expected Docker {found.wanted_version}")
    elif found.version != found.wanted_version:
        yield say(f"the image has Docker {found.version}, expected {found.wanted_version}")
    if not found.keeps_log:
        yield say("Docker's entries in the event log have no text")
    if found.lacks_network:
        yield say("Docker has no network named host, which pods with the host's network join")
    if facts.docker_pods is not None and facts.docker_pods.name == _KUBELET:
        yield from _pods(facts)


def _pods(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.docker_pods
    if found is None:
        return
    if found.failure:
        yield say(f"{found.name} does not answer: {found.failure}")
    if found.endpoint != found.kubelet_endpoint:
        yield say(f"kubelet connects to {found.kubelet_endpoint}, and {found.name} answers at {found.endpoint}")
    if found.name == _KUBELET and not facts.kubelet.is_running:
        return
    if found.plugin != "cni":
        yield say(f"{found.name} asks no network plugin")
    if found.folders != found.wanted_folders:
        have, want = " and ".join(found.folders), " and ".join(found.wanted_folders)
        yield say(f"{found.name} looks for network plugins in {have}, expected {want}")
    if found.sandbox_image != found.wanted_sandbox_image:
        yield say(f"{found.name} starts pods with {found.sandbox_image}, expected {found.wanted_sandbox_image}")


CHECKS: Final = (
    Check("docker", "Docker runs, and starts pods as the config says", _docker, lambda facts: facts.docker is not None),
    Check(
        "cri-dockerd",
        "cri-dockerd runs, and kubelet connects to it",
        _pods,
        lambda facts: facts.docker_pods is not None and facts.docker_pods.name != _KUBELET,
    ),
)
