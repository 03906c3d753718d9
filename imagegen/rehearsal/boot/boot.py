"""Boots the image: starts a node from it on the cloud's stand-in, twice, and judges what came up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot.cloudbase_init import SERVICE, read_settings, read_text
from imagegen.boot.guarded import layout_of
from imagegen.boot.judge import judge
from imagegen.boot.log import has_metadata, has_run_user_data
from imagegen.boot.node import Finding, FirstBoot, Given, SecondBoot
from imagegen.rehearsal.boot.booted import Boot
from imagegen.rehearsal.boot.given_certificates import pieces
from imagegen.rehearsal.boot.link_local import UNKNOWN, LinkLocal
from imagegen.rehearsal.boot.node import Node, Outside
from imagegen.rehearsal.boot.snapshot import find_changes, take_snapshot
from imagegen.rehearsal.boot.user_data import join_of, make_user_data, sockets_of
from imagegen.rehearsal.boot.view import MachineNode
from imagegen.rehearsal.clouds import guest_agents, stand_in
from imagegen.rehearsal.node.join import make_kubeadm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from imagegen.rehearsal.boot.booted import Image
    from imagegen.rehearsal.boot.model import Ended, Instance, Platform
    from imagegen.rehearsal.boot.user_data import Join, UserData
    from imagegen.rehearsal.cloudbase_init.run import Runner

# An HTTP status from here on is an error.
_ERRORS: Final = 400
_NOT_YET: Final = SecondBoot(ran_user_data=False, commands=(), changed=())


def boot_image(
    image: Image,
    runner: Runner,
    make_data: Callable[[Join], UserData] = make_user_data,
    change_instance: Callable[[Instance], Instance] = lambda instance: instance,
    keep_log: Callable[[str], object] = lambda _: None,
) -> Boot:
    """Start a node from the image. `make_data` makes its user data for the cluster that it joins, and
    `change_instance` changes what its creator gave it. `keep_log` is given the log of cloudbase-init in every case."""
    user_data, nodes = make_data(join_of(image.spec)), dict[str, str]()
    cloud = stand_in(image.spec.provider)
    instance = change_instance(cloud.make_instance(user_data.text))
    machine = image.machine.copy(runner.scratch / "node")
    platform = cloud.make_platform(instance, lambda: machine.age_s)
    # A cloud that asks for no report has nothing against a machine that sent none.
    wants_report = platform.refusal() is not None
    unchecked: list[str] = []
    with LinkLocal(platform.hosts) as link:
        kubeadm = make_kubeadm(nodes, sockets_of(image.spec), unchecked)
        outside = Outside(platform, runner, link.url, {"kubeadm.exe": kubeadm})
        node = Node(machine, instance, outside, guest_agents(image.spec.provider), unchecked)
        start = _Start(image, node, instance, platform, user_data, nodes, link, wants_report)
        try:
            found = start.twice()
        finally:
            # Where an error ends the boot, such as a cloudbase-init that hangs, the log is needed most.
            log = start.read_log()
            keep_log(log)
    strange = tuple(dict.fromkeys([*node.runs.unknown, *link.faults]))
    limits = tuple(dict.fromkeys(unchecked))
    # What was interrupted proves nothing of what comes after it.
    verdicts = () if node.runs.was_interrupted else tuple(judge(found))
    return Boot(image, found, verdicts, runner.reason, strange, log, limits)


@dataclasses.dataclass(frozen=True)
class _Start:
    """A node that starts, with everything around it."""

    image: Image
    node: Node
    instance: Instance
    platform: Platform
    user_data: UserData
    nodes: Mapping[str, str]
    link: LinkLocal
    wants_report: bool

    def twice(self) -> MachineNode:
        runs = self.node.runs
        self.node.start_first()
        first = self._look(self._first_boot(), _NOT_YET)
        if runs.setup_failure:
            return first
        before, logged = self._snapshot(), len(self.read_log())
        commands, crashes = len(runs.commands), len(runs.crashes)
        self.node.start_again()
        log = self.read_log()[logged:]
        second = SecondBoot(
            ran_user_data=has_run_user_data(log),
            commands=[line for line, _ in runs.commands[commands:]],
            changed=[*self._lost(first.first, log, runs.crashes[crashes:]), *find_changes(before, self._snapshot())],
        )
        return self._look(first.first, second)

    def read_log(self) -> str:
        """The log of cloudbase-init, of all its starts."""
        view = self._look(self._first_boot(""), _NOT_YET)
        return read_text(view, read_settings(view).log)

    def _snapshot(self) -> dict[str, str]:
        layout = layout_of(self.image.spec)
        nodes = {f"node {name}": address for name, address in self.nodes.items()}
        return nodes | take_snapshot(self.node.machine, [layout[name] for name in ("etc_kubernetes", "kubelet")])

    def _lost(self, first: FirstBoot, log: str, crashes: Sequence[str]) -> Iterator[str]:
        """What was so after the first boot, and no longer is. `log` and `crashes` are those of the second boot."""
        if has_metadata(first.log) and not has_metadata(log):
            yield f"that {SERVICE} finds a metadata service that answers"
        if first.is_done and not first.crash and (crashes or not self.node.runs.is_done):
            yield f"that {SERVICE} ends{f' ({crashes[-1]})' if crashes else ''}"

    def _look(self, first: FirstBoot, second: SecondBoot) -> MachineNode:
        return MachineNode(
            self.node.machine,
            self.image.machine,
            self.image.spec,
            self._given(),
            first,
            second,
            self.nodes,
            self.node.runs.console,
        )

    def _given(self) -> Given:
        entries = self.link.journal.entries
        refused = (one.note for one in entries if one.status >= _ERRORS and one.note and one.note != UNKNOWN)
        return Given(
            host_name=self.instance.host_name,
            has_keys=bool(self.instance.public_keys),
            user_data=self.user_data.text,
            secrets=self.user_data.secrets,
            keys=[piece for one in self.instance.certificates for piece in pieces(one)],
            wants_report=self.wants_report,
            refusal=self.platform.refusal() or "",
            unanswered=tuple(dict.fromkeys(refused)),
        )

    def _first_boot(self, log: str | None = None) -> FirstBoot:
        runs = self.node.runs
        failure = runs.setup_failure
        # The answer file can start cloudbase-init.
        text = f"{failure}{f': {runs.crashes[-1]}' if runs.crashes else ''}"
        return FirstBoot(
            setup_failure=Finding(text=text, row=failure.row) if failure else None,
            ran_complete_script=runs.ran_complete_script,
            version=runs.version,
            started_early=runs.started_early,
            is_done=runs.is_done,
            crash=runs.crashes[-1] if runs.crashes else "",
            restarts_forever=runs.restarts_forever,
            log=self.read_log() if log is None else log,
            scripts_of_agents=tuple(runs.scripts_of_agents),
            joins=len(runs.commands),
            join_failure=_read_failure(runs.commands),
        )


def _read_failure(commands: Sequence[tuple[str, Ended]]) -> str:
    """What the last command said last, if it failed."""
    lines = [line.strip() for _, ended in commands[-1:] if ended.exit_code for line in ended.output.splitlines()]
    return " ".join([line for line in lines if line][-1:])
