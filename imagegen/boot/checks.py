"""What must be so on a machine that came up as a node. Each check judges one thing and names what it belongs to."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from imagegen.boot.facts import NodeFacts
from imagegen.boot.guarded import Guarded, find_open

# How many of many findings a reason names.
_NAMED: Final = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """One check. `rows` are the rows of docs/reality.md that it keeps."""

    name: str
    passes: str
    """What is so, in a few words."""
    rows: tuple[str, ...]
    find: Callable[[NodeFacts], Iterable[str]]
    """The reasons why it is not so."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of one check: passed if there are no reasons."""

    check: Check
    reasons: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def line(self) -> str:
        if self.passed:
            return f"{self.check.passes}"
        rows = f" ({', '.join(self.check.rows)})" if self.check.rows else ""
        return f"{self.check.name}{rows}: {'; '.join(self.reasons)}"


def judge(facts: NodeFacts, guarded: tuple[Guarded, ...]) -> list[Verdict]:
    """Make every check."""
    closed = Check("closed-folders", "the node's folders are closed to Users", ("B9",), _open_folders(guarded))
    return [Verdict(check, tuple(check.find(facts))) for check in (*CHECKS, closed)]


def _cloudbase_init(facts: NodeFacts) -> Iterator[str]:
    found = facts.cloudbase_init
    if not found.version:
        yield "cloudbase-init did not run: nothing started its service"
        return
    if found.started_early:
        yield "cloudbase-init was started before Windows Setup had ended: its service is automatic in the image"
    if not found.is_done:
        yield f"cloudbase-init did not come to its end{f': {found.crash}' if found.crash else ''}"
    undone = [name for name, done in found.plugins.items() if not done]
    if undone:
        yield f"plugins that did not do their work: {', '.join(undone)}"


def _user_data(facts: NodeFacts) -> Iterator[str]:
    if facts.cloudbase_init.version and "UserDataPlugin" not in facts.cloudbase_init.plugins:
        yield "the list of plugins has no UserDataPlugin, so no user data runs"
    yield from facts.cloudbase_init.complaints
    for path in facts.unrendered:
        yield f"a template in {path} was not rendered: cloudbase-init renders templates only in user data of one part"


def _ready(facts: NodeFacts) -> Iterator[str]:
    if facts.cloud.refusal:
        yield facts.cloud.refusal


def _host_name(facts: NodeFacts) -> Iterator[str]:
    if facts.host_name.lower() != facts.wanted_host_name.lower():
        yield f"the host name is {facts.host_name}, and the cloud gave {facts.wanted_host_name}"


def _kubelet(facts: NodeFacts) -> Iterator[str]:
    if not facts.kubelet.is_running:
        yield "kubelet does not run"
        return
    missing = [argument for argument in facts.kubelet.kubeadm_arguments if argument not in facts.kubelet.arguments]
    if missing:
        yield f"kubelet runs without the arguments that kubeadm wrote: {' '.join(missing)}"


def _node(facts: NodeFacts) -> Iterator[str]:
    if facts.nodes == (facts.wanted_node,):
        return
    if facts.nodes:
        yield f"the cluster has node {', '.join(facts.nodes)}, expected {facts.wanted_node}"
    else:
        yield f"no node registered with the cluster{f': {facts.join}' if facts.join else ''}"


def _secrets(facts: NodeFacts) -> Iterator[str]:
    if facts.leaks:
        yield f"a secret of the user data is in {_some(facts.leaks)}"


def _builder(facts: NodeFacts) -> Iterator[str]:
    found = facts.builder
    for what, names in (
        ("a WinRM listener", found.listeners),
        ("a certificate of the builder", found.certificates),
        ("a firewall rule for WinRM", found.rules),
        ("an account of the builder that can log on", found.accounts),
    ):
        if names:
            yield f"{what} is left: {_some(names)}"


def _second_boot(facts: NodeFacts) -> Iterator[str]:
    if facts.changed_by_restart:
        yield f"a second boot changed {_some(facts.changed_by_restart)}"


def _open_folders(guarded: tuple[Guarded, ...]) -> Callable[[NodeFacts], Iterator[str]]:
    def find(facts: NodeFacts) -> Iterator[str]:
        found = [f"{access.path} ({access.sid}: {access.rights})" for access in find_open(guarded, facts.access)]
        if found:
            yield f"others than administrators may read or write {_some(found)}"

    return find


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")


CHECKS: Final = (
    Check("cloudbase-init", "cloudbase-init ran once and ended", (), _cloudbase_init),
    Check("user-data", "the user data ran", ("B2", "B3", "B4"), _user_data),
    Check("ready", "the cloud takes the machine for ready", ("B1",), _ready),
    Check("host-name", "the host name is the cloud's", (), _host_name),
    Check("kubelet", "kubelet runs with kubeadm's arguments", ("N4",), _kubelet),
    Check("node", "the node registered", ("B10", "N6"), _node),
    Check("secrets", "no secret of the user data is in a log", ("B7", "B8"), _secrets),
    Check("builder", "nothing of the builder's access is left", ("B12",), _builder),
    Check("second-boot", "a second boot changes nothing", (), _second_boot),
)
