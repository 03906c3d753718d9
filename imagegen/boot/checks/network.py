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


def _pod_routes(facts: NodeFacts) -> Iterator[Finding]:
    yield from map(say, facts.pod_network.missing_routes or ())


def _kube_proxy(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.kube_proxy
    if found.failure or not found.node:
        yield say(f"kube-proxy does not run: {found.failure or 'nothing started its service'}")
    elif found.node != facts.wanted_node:
        yield say(f"kube-proxy runs for node {found.node}, and the node is {facts.wanted_node}")
    elif found.waits and facts.pod_network.plugin:
        yield say(f"kube-proxy waits for the network {found.network}, which does not exist")


def _policies(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.policies
    if found is None:
        return
    if not found.is_running:
        yield say(f"nothing enforces network policies: {found.failure or 'nothing started the service CalicoFelix'}")
    elif not found.is_enforced:
        yield say(f"network policies are enforced in networks named {found.networks}, and the pods are in another one")


CHECKS: Final = (
    Check(
        "pod-network",
        "the node is ready, and a pod gets an address",
        _pod_network,
        lambda facts: bool(facts.pod_network.plugin) and bool(facts.nodes),
    ),
    Check(
        "pod-routes",
        "pods of this node and of another one find each other",
        _pod_routes,
        lambda facts: facts.pod_network.missing_routes is not None and bool(facts.nodes),
    ),
    Check(
        "kube-proxy",
        "kube-proxy runs for this node, as soon as the network of pods exists",
        _kube_proxy,
        lambda facts: facts.kube_proxy.is_asked and bool(facts.nodes),
    ),
    Check(
        "network-policies",
        "network policies are enforced in the network of pods",
        _policies,
        lambda facts: facts.policies is not None and bool(facts.nodes),
    ),
)
