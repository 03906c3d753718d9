"""What must be so on a machine that came up as a node. Each check judges one thing, and each of its reasons names the
row of docs/reality.md that explains it, where there is one.

The checks are in the order in which a node comes up, and so are the reasons of a check: a cause is before its effects.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from imagegen.boot.facts import Finding, NodeFacts
from imagegen.boot.guarded import Guarded, find_open, may_change
from imagegen.boot.log import USER_DATA

_HIGH_PERFORMANCE: Final = "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c"
# How many of many findings a reason names.
_NAMED: Final = 3
_HOST_NAME: Final = "SetHostNamePlugin"
# What kubeadm and kubelet say, and its row.
_ROWS_OF_MESSAGES: Final = (
    (re.compile(r"The user name could not be found"), "B10"),
    (re.compile(r"depends on features that are disabled"), "N7"),
    (re.compile(r"unknown flag"), "N8"),
)


@dataclasses.dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    passes: str
    """What is so, in a few words."""
    find: Callable[[NodeFacts], Iterable[Finding]]
    """The reasons why it is not so."""
    applies: Callable[[NodeFacts], bool] = lambda _: True


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of one check: passed if there are no reasons."""

    check: Check
    reasons: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def line(self) -> str:
        return self.check.passes if self.passed else f"{self.check.name}: {'; '.join(self.texts)}"

    @property
    def texts(self) -> list[str]:
        """The reasons, each with its row."""
        return [f"{one.text} ({one.row})" if one.row else one.text for one in self.reasons]


def judge(facts: NodeFacts, guarded: tuple[Guarded, ...]) -> list[Verdict]:
    """Make every check that applies. If Windows Setup did not end, nothing else can be judged."""
    checks = CHECKS[:1] if facts.setup.failure else (*CHECKS, make_folder_check(guarded))
    return [Verdict(check, tuple(check.find(facts))) for check in checks if check.applies(facts)]


def make_folder_check(guarded: tuple[Guarded, ...]) -> Check:
    return Check("closed-folders", "the node's folders are closed to Users", _open_folders(guarded))


def _say(text: str, row: str = "") -> Finding:
    return Finding(text=text, row=row)


def _setup(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.setup
    if found.failure:
        yield found.failure
    elif not found.ran_complete_script:
        yield _say(
            "the image has no SetupComplete.cmd, so Windows Setup starts neither first-boot.ps1 nor cloudbase-init"
        )
    elif found.first_boot is None:
        yield _say("SetupComplete.cmd did not start first-boot.ps1")
    elif found.first_boot:
        yield _say(f"first-boot.ps1 could not do everything: {_some(found.first_boot)}")


def _cloudbase_init(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cloudbase_init
    if not found.version:
        yield _say(f"cloudbase-init did not run: {found.crash or 'nothing started its service'}")
        return
    if found.started_early:
        yield _say("cloudbase-init was started before Windows Setup had ended: its service is automatic in the image")
    yield from found.complaints
    if not found.has_metadata:
        answers = f". The cloud refused its requests: {_some(facts.cloud.unanswered)}" if facts.cloud.unanswered else ""
        configured = ", ".join(found.services) or "none"
        yield _say(f"cloudbase-init found no metadata service that answers. Configured: {configured}{answers}")
        return
    if found.crash:
        yield _say(f"cloudbase-init did not come to its end: {found.crash}")
        return
    if found.restarts_forever:
        yield _say("cloudbase-init asks for a restart at every start")
    elif not found.is_done:
        yield _say("cloudbase-init did not come to its end")
    named = " ".join(one.text for one in found.complaints)
    for name, end in found.plugins.items():
        # The check of user data judges this one.
        if end != "done" and name != USER_DATA and name not in named:
            yield _say(f"{name} failed" if end == "failed" else f"{name} did not run")


def _user_data(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cloudbase_init
    reasons = [
        _say(
            f"a template in {path} was not rendered: cloudbase-init renders templates in user data of one part "
            "only. Write the values out",
            "B2",
        )
        for path in facts.unrendered
    ]
    reasons += [
        _say(f"the <{tag}> script of the user data ran twice: the cloud's own agent runs such a script too", "B5")
        for tag in facts.scripts_of_agents
    ]
    reasons += found.user_data_complaints
    yield from reasons
    end = found.plugins.get(USER_DATA)
    if not found.version:
        yield _say("no user data ran, because cloudbase-init did not run")
    elif end is None:
        yield _say(f"no user data ran: the list of plugins has no {USER_DATA}")
    elif end == "not run" or (end == "failed" and not reasons):
        yield _say(f"{USER_DATA} failed" if end == "failed" else f"no user data ran: {USER_DATA} did not run")


def _ready(facts: NodeFacts) -> Iterator[Finding]:
    refusal, off = facts.cloud.refusal, facts.cloudbase_init.unreported
    if refusal and off and facts.cloudbase_init.version:
        yield _say(f"cloudbase-init does not report to the cloud: {' and '.join(off)} must be true", "B1")
    if refusal:
        yield _say(f"the cloud says: {refusal}")


def _host_name(facts: NodeFacts) -> Iterator[Finding]:
    if facts.host_name.lower() == facts.wanted_host_name.lower():
        return
    if facts.cloudbase_init.version and _HOST_NAME not in facts.cloudbase_init.plugins:
        yield _say(f"the list of plugins has no {_HOST_NAME}")
    yield _say(f"the host name is {facts.host_name}, and the cloud gave {facts.wanted_host_name}")


def _time_zone(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.windows
    if found.time_zone != found.wanted_time_zone:
        yield _say(f"the time zone is {found.time_zone}, and the config has {found.wanted_time_zone}")


def _dns_suffix(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.windows
    if found.dns_suffix.lower() != found.wanted_dns_suffix.lower():
        yield _say(f"the DNS suffix is '{found.dns_suffix}', and the config has {found.wanted_dns_suffix}")


def _power(facts: NodeFacts) -> Iterator[Finding]:
    if facts.windows.power_plan != _HIGH_PERFORMANCE:
        yield _say(f"the power plan is {facts.windows.power_plan or 'unknown'}, not high performance")


def _time_service(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.windows.keeps_time:
        yield _say("the time service does not run, so the clock drifts and certificates seem invalid")


def _ports(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.windows
    for protocol, count in found.dynamic_ports.items():
        if count < found.wanted_dynamic_ports:
            yield _say(f"programs can get {count} {protocol} ports, and need {found.wanted_dynamic_ports}")
    for ports in found.given_ports:
        yield _say(f"a program can get the ports {ports}")


def _defender(facts: NodeFacts) -> Iterator[Finding]:
    if facts.windows.scanned:
        yield _say(f"Defender scans the files that {_some(facts.windows.scanned)} opens")


def _join(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.join.runs:
        yield _say("kubeadm did not run")
    elif facts.join.failure:
        # Once kubelet has its arguments, kubeadm waits for it.
        waited = facts.kubelet.kubeadm_arguments and not facts.kubelet.is_running
        why = f"kubelet does not run: {facts.kubelet.failure}. " if waited and facts.kubelet.failure else ""
        yield _say(f"{why}kubeadm failed: {facts.join.failure}", _row_of_message(why + facts.join.failure))


def _kubelet(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.kubelet
    if not found.is_running:
        why = f": {found.failure}" if found.failure else ""
        yield _say(f"kubelet does not run{why}", _row_of_message(found.failure))
        return
    missing = [argument for argument in found.kubeadm_arguments if argument not in found.arguments]
    if missing:
        yield _say(f"kubelet runs without the arguments that kubeadm wrote: {' '.join(missing)}", "N4")


def _node(facts: NodeFacts) -> Iterator[Finding]:
    if facts.nodes == (facts.wanted_node,):
        return
    if not facts.nodes:
        yield _say("no node registered with the cluster")
        return
    order = list(facts.cloudbase_init.plugins)
    if _HOST_NAME in order and USER_DATA in order and order.index(USER_DATA) < order.index(_HOST_NAME):
        yield _say(
            f"the machine joined before it had its name: {USER_DATA} is before {_HOST_NAME} in the list of plugins"
        )
    yield _say(f"the cluster has node {', '.join(facts.nodes)}, expected {facts.wanted_node}")


def _credential_providers(facts: NodeFacts) -> Iterator[Finding]:
    for found in facts.credential_providers:
        if not found.is_registered:
            yield _say(f"kubelet does not know the credential provider {found.name}", "N14")
        elif not found.can_run:
            yield _say(f"kubelet cannot start the credential provider {found.name}: its program is missing", "N14")


def _services(facts: NodeFacts) -> Iterator[Finding]:
    for found in facts.services:
        if not found.is_running:
            yield _say(f"service {found.name} does not run{f': {found.failure}' if found.failure else ''}")
        elif not found.log:
            yield _say(f"service {found.name} keeps no log")
        elif found.readers:
            yield _say(f"others than administrators may read or write {found.log}, the log of {found.name}")


def _reached(facts: NodeFacts) -> Iterator[Finding]:
    for reach in facts.reached:
        place = f"{reach.address}, TCP port {reach.port}"
        if reach.can and not reach.may:
            yield _say(f"{reach.account} can connect to {place}", "N1")
        elif reach.may and not reach.can:
            yield _say(f"{reach.account} cannot connect to {place}", "N1")


def _secrets(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.leaks:
        return
    found = facts.cloudbase_init
    in_log = found.log.lower() in map(str.lower, facts.leaks)
    if in_log and found.debug:
        yield _say("cloudbase-init writes user data into its log, because debug is true", "B7")
    elif in_log:
        yield _say("cloudbase-init writes user data that it cannot use into its log", "B8")
    yield _say(f"a secret of the user data is in {_some(facts.leaks)}")


def _own_files(facts: NodeFacts) -> Iterator[Finding]:
    for file in facts.own_files:
        if file.state != "there":
            yield _say(f"{file.path} is missing" if file.state == "missing" else f"{file.path} has other content")
        for access in filter(may_change, file.access):
            yield _say(f"others than administrators may change {file.path} ({access.sid}: {access.rights})")


def _builder(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.builder
    for what, names, row in (
        ("a WinRM listener", found.listeners, ""),
        ("a certificate of the builder", found.certificates, ""),
        ("a firewall rule for WinRM", found.rules, ""),
        ("an account of the builder that can log on", found.accounts, "B12"),
    ):
        if names:
            yield _say(f"{what} is left: {_some(names)}", row)


def _second_boot(facts: NodeFacts) -> Iterator[Finding]:
    if facts.commands_of_restart:
        yield _say(f"a second boot ran {_some(facts.commands_of_restart)}")
    if facts.changed_by_restart:
        yield _say(f"a second boot changed {_some(facts.changed_by_restart)}")
    if facts.user_data_of_restart and not facts.commands_of_restart:
        yield _say("a second boot ran the user data again")


def _open_folders(guarded: tuple[Guarded, ...]) -> Callable[[NodeFacts], Iterator[Finding]]:
    def find(facts: NodeFacts) -> Iterator[Finding]:
        by_row: dict[str, list[str]] = {}
        for row, access in find_open(guarded, facts.access):
            by_row.setdefault(row, []).append(f"{access.path} ({access.sid}: {access.rights})")
        for row, found in by_row.items():
            yield _say(f"others than administrators may read or write {_some(found)}", row)

    return find


def _row_of_message(message: str) -> str:
    return next((row for form, row in _ROWS_OF_MESSAGES if form.search(message)), "")


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")


CHECKS: Final = (
    Check("setup", "Windows Setup ended, and first-boot.ps1 did everything", _setup),
    Check("cloudbase-init", "cloudbase-init ran once and ended", _cloudbase_init),
    Check("user-data", "the user data ran", _user_data),
    Check("ready", "the cloud takes the machine for ready", _ready, lambda facts: facts.cloud.wants_report),
    Check("host-name", "the host name is the cloud's", _host_name),
    Check(
        "time-zone",
        "the time zone is the config's",
        _time_zone,
        lambda facts: bool(facts.windows.wanted_time_zone),
    ),
    Check(
        "dns-suffix", "the DNS suffix is the config's", _dns_suffix, lambda facts: bool(facts.windows.wanted_dns_suffix)
    ),
    Check("power", "the power plan is high performance", _power),
    Check("time-service", "the time service runs", _time_service),
    Check("ports", "programs have enough ports, and none that is reserved", _ports),
    Check("defender", "Defender does not scan what kubelet and containerd open", _defender),
    Check("join", "kubeadm joined the machine to the cluster", _join),
    Check("kubelet", "kubelet runs with kubeadm's arguments", _kubelet),
    Check("node", "the node registered", _node),
    Check(
        "credential-providers",
        "kubelet has the credential providers of the config, and can start them",
        _credential_providers,
        lambda facts: bool(facts.credential_providers),
    ),
    Check(
        "services",
        "the services that the config adds run, and keep logs that are closed to Users",
        _services,
        lambda facts: bool(facts.services),
    ),
    Check(
        "cloud-address",
        "the cloud's own address is closed to containers, and open to cloudbase-init",
        _reached,
        lambda facts: bool(facts.reached),
    ),
    Check("secrets", "no secret of the user data is in a log", _secrets),
    Check(
        "own-files",
        "the programs and scripts of the config are there, and only administrators can change them",
        _own_files,
        lambda facts: bool(facts.own_files),
    ),
    Check("builder", "nothing of the builder's access is left", _builder),
    Check("second-boot", "a second boot changes nothing", _second_boot),
)
