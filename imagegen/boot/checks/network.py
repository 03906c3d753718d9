"""What must be so about the network of pods."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say
from imagegen.boot.facts import Finding, NodeFacts


def _pod_network(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.pod_network
    if found.unready:
        yield say(f"the node is not ready: {found.unready}")
    elif found.refusal:
        yield say(f"a pod gets no address: {found.refusal}")


CHECKS: Final = (
    Check(
        "pod-network",
        "the node is ready, and a pod gets an address",
        _pod_network,
        lambda facts: bool(facts.pod_network.plugin) and bool(facts.nodes),
    ),
)
