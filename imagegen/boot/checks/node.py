"""What must be so about kubeadm, kubelet and the node in the cluster."""

import re
from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say
from imagegen.boot.facts import Finding, NodeFacts
from imagegen.boot.log import USER_DATA

_HOST_NAME: Final = "SetHostNamePlugin"
# What kubeadm and kubelet say, and its row.
_ROWS_OF_MESSAGES: Final = (
    (re.compile(r"The user name could not be found"), "B10"),
    (re.compile(r"depends on features that are disabled"), "N7"),
    (re.compile(r"unknown flag"), "N8"),
)


def _join(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.join.runs:
        yield say("kubeadm did not run")
    elif facts.join.failure:
        # Once kubelet has its arguments, kubeadm waits for it.
        waited = facts.kubelet.kubeadm_arguments and not facts.kubelet.is_running
        why = f"kubelet does not run: {facts.kubelet.failure}. " if waited and facts.kubelet.failure else ""
        yield say(f"{why}kubeadm failed: {facts.join.failure}", _row_of_message(why + facts.join.failure))


def _kubelet(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.kubelet
    if not found.is_running:
        why = f": {found.failure}" if found.failure else ""
        yield say(f"kubelet does not run{why}", _row_of_message(found.failure))
        return
    missing = [argument for argument in found.kubeadm_arguments if argument not in found.arguments]
    if missing:
        yield say(f"kubelet runs without the arguments that kubeadm wrote: {' '.join(missing)}", "N4")
    if not found.keeps_log:
        yield say("kubelet keeps no log")
    if not found.is_reached:
        yield say("Windows' firewall blocks TCP port 10250, where the API server asks kubelet for logs and metrics")
    if not found.shares_volumes:
        yield say("containers may not write to their volumes, which are in kubelet's folder pods")


def _node(facts: NodeFacts) -> Iterator[Finding]:
    if facts.nodes == (facts.wanted_node,):
        if address := facts.kubelet.lost_address:
            yield say(f"the cluster does not know the address {address} of --node-ip: no network card has it")
        return
    if not facts.nodes:
        yield say("no node registered with the cluster")
        return
    order = list(facts.cloudbase_init.plugins)
    if _HOST_NAME in order and USER_DATA in order and order.index(USER_DATA) < order.index(_HOST_NAME):
        yield say(
            f"the machine joined before it had its name: {USER_DATA} is before {_HOST_NAME} in the list of plugins"
        )
    yield say(f"the cluster has node {', '.join(facts.nodes)}, expected {facts.wanted_node}")


def _credential_providers(facts: NodeFacts) -> Iterator[Finding]:
    for found in facts.credential_providers:
        if not found.is_registered:
            yield say(f"kubelet does not know the credential provider {found.name}", "N14")
        elif not found.can_run:
            yield say(f"kubelet cannot start the credential provider {found.name}: its program is missing", "N14")


def _row_of_message(message: str) -> str:
    return next((row for form, row in _ROWS_OF_MESSAGES if form.search(message)), "")


CHECKS: Final = (
    Check("join", "kubeadm joined the machine to the cluster", _join),
    Check("kubelet", "kubelet runs with kubeadm's arguments, and the cluster and containers reach it", _kubelet),
    Check("node", "the node registered", _node),
    Check(
        "credential-providers",
        "kubelet has the credential providers of the config, and can start them",
        _credential_providers,
        lambda facts: bool(facts.credential_providers),
    ),
)
