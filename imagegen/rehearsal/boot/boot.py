"""Boots the image: starts a node from it on the cloud's and the cluster's stand-ins, twice, and judges what came up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.boot.checks import Verdict, judge
from imagegen.boot.guarded import list_guarded
from imagegen.rehearsal.boot import observe
from imagegen.rehearsal.boot.link_local import LinkLocal
from imagegen.rehearsal.boot.node import CLOUDBASE_INIT, Node
from imagegen.rehearsal.boot.user_data import Join, make_user_data
from imagegen.rehearsal.clouds import guest_agents, stand_in
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.kubeadm import make_kubeadm
from imagegen.rehearsal.node.kubelet import Kubelet
from imagegen.rehearsal.node.objects import config_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from imagegen.rehearsal.boot.model import Ended, Instance, Platform
    from imagegen.rehearsal.boot.user_data import UserData
    from imagegen.rehearsal.cloudbase_init.run import Runner
    from imagegen.rehearsal.machine.windows import Machine

# How long kubelet's service may take to come up, with restarts after failures.
_KUBELET_S: Final = 300.0


@dataclasses.dataclass(frozen=True)
class Image:
    """A captured machine, and what the plan says of it."""

    machine: Machine
    provider: str
    kubernetes: str
    cloudbase_init: str
    layout: Mapping[str, str]
    """The image's folders by name."""


@dataclasses.dataclass(frozen=True)
class Boot:
    """The verdicts on a node that was started from an image."""

    image: Image
    verdicts: tuple[Verdict, ...]
    cloudbase_init: str
    """The version that ran. Empty if none ran."""
    reason: str
    """Why it is not the image's. Empty if it is."""
    starts: int
    """How often Windows started, Setup's own restarts included."""
    unknown: tuple[str, ...]
    """What the rehearsal does not know of the programs that ran."""
    log: str
    """The log of cloudbase-init."""

    @property
    def lines(self) -> list[str]:
        """One line for each check that passed, and for the cloudbase-init that ran."""
        ran, wanted = self.cloudbase_init, self.image.cloudbase_init
        version = f"cloudbase-init {ran} ran"
        if ran != wanted:
            version += f", and the image has {wanted}{f': {self.reason}' if self.reason else ''}"
        return [version, *(verdict.line for verdict in self.verdicts if verdict.passed)]

    @property
    def faults(self) -> list[str]:
        unknown = [f"the rehearsal does not know {what}" for what in self.unknown]
        return [*(verdict.line for verdict in self.verdicts if not verdict.passed), *unknown]

    def record(self) -> dict[str, JsonValue]:
        """What the manifest keeps."""
        note: dict[str, JsonValue] = {
            "starts": self.starts,
            "cloudbase_init": self.cloudbase_init,
            "cloudbase_init_in_image": self.image.cloudbase_init,
            "passed": [verdict.check.name for verdict in self.verdicts if verdict.passed],
        }
        if self.reason:
            note["cloudbase_init_reason"] = self.reason
        return note


def boot_image(image: Image, runner: Runner, user_data: bytes | None = None) -> Boot:
    """Start a node from the image. Without user data it gets that of a rehearsed cluster."""
    with Cluster(image.kubernetes) as cluster:
        join = Join(cluster.endpoint, cluster.ca_cert_hash, cluster.token, config_version(image.kubernetes))
        own = make_user_data(join)
        given = own if user_data is None else dataclasses.replace(own, text=user_data)
        return _boot(image, cluster, given, runner)


def _boot(image: Image, cluster: Cluster, user_data: UserData, runner: Runner) -> Boot:
    cloud = stand_in(image.provider)
    instance = cloud.make_instance(user_data.text)
    platform = cloud.make_platform(instance)
    machine = image.machine.copy(runner.scratch / "node")
    with LinkLocal(platform.hosts) as link:
        node = Node(
            machine,
            instance,
            platform,
            agents=guest_agents(image.provider),
            programs={"kubeadm.exe": make_kubeadm(cluster)},
            runner=runner,
            proxy=link.url,
        )
        kubelet = Kubelet(machine, cluster)
        observed = _Observed(image, cluster, instance, platform, user_data, node, kubelet)
        node.start_first()
        machine.wait_until(lambda: kubelet.is_running, _KUBELET_S)
        found = observed.collect()
        before, commands = observed.snapshot(), len(node.runs.commands)
        node.start_again()
        came_back = machine.wait_until(lambda: kubelet.is_running, _KUBELET_S) or not found.kubelet.is_running
        changed = [*before.changes(observed.snapshot()), *(line for line, _ in node.runs.commands[commands:])]
        changed += [] if came_back else ["that kubelet runs"]
        strange = [*link.journal.faults, *(f"{entry.host}{entry.path}" for entry in link.unknown), *node.runs.unknown]
    found = found.model_copy(update={"changed_by_restart": tuple(changed)})
    log = observe.read_text(machine, observe.read_settings(machine, CLOUDBASE_INIT).log)
    verdicts = tuple(judge(found, list_guarded(image.layout)))
    return Boot(
        image, verdicts, node.runs.version, runner.reason, machine.boot_count, tuple(dict.fromkeys(strange)), log
    )


@dataclasses.dataclass(frozen=True)
class _Observed:
    """A booted node with everything around it, to be looked at."""

    image: Image
    cluster: Cluster
    instance: Instance
    platform: Platform
    user_data: UserData
    node: Node
    kubelet: Kubelet

    def collect(self) -> facts.NodeFacts:
        machine, runs = self.node.machine, self.node.runs
        guarded = list_guarded(self.image.layout)
        first_label = self.instance.host_name.partition(".")[0]
        return facts.NodeFacts(
            cloud=facts.Cloud(
                reports=tuple(report.state for report in self.platform.reports), refusal=self.platform.refusal()
            ),
            host_name=machine.host_name,
            wanted_host_name=first_label,
            cloudbase_init=self._cloudbase_init(),
            unrendered=tuple(observe.find_unrendered(machine)),
            join=_last_line(runs.commands),
            kubelet=self._kubelet(),
            nodes=tuple(self.cluster.nodes),
            wanted_node=self.instance.host_name if b"{{" in self.user_data.text else first_label.lower(),
            leaks=tuple(observe.find_leaks(machine, self.user_data.secrets, runs.console, guarded)),
            access=tuple(observe.list_access(machine, guarded)),
            builder=observe.look_for_builder(machine, self.image.machine),
            changed_by_restart=(),
        )

    def snapshot(self) -> observe.Snapshot:
        nodes = {f"node {name}": str(sorted(node.labels.items())) for name, node in self.cluster.nodes.items()}
        return observe.take_snapshot(self.node.machine, nodes)

    def _cloudbase_init(self) -> facts.CloudbaseInit:
        machine, runs = self.node.machine, self.node.runs
        settings = observe.read_settings(machine, CLOUDBASE_INIT)
        log = observe.read_text(machine, settings.log)
        agents = [f"the cloud's agent ran {script} too (B5)" for script in dict.fromkeys(runs.scripts_of_agents)]
        complaints = observe.find_complaints(log, has_keys=bool(self.instance.public_keys))
        return facts.CloudbaseInit(
            version=runs.version,
            started_early=runs.started_early,
            is_done=runs.is_done,
            crash=runs.crashes[-1] if runs.crashes else "",
            plugins=observe.judge_plugins(settings.plugins, log),
            complaints=(*complaints, *agents),
        )

    def _kubelet(self) -> facts.Kubelet:
        flags = observe.read_kubeadm_arguments(self.node.machine, self.image.layout["kubelet"] + r"\kubeadm-flags.env")
        return facts.Kubelet(
            is_running=self.kubelet.is_running, arguments=tuple(self.kubelet.arguments), kubeadm_arguments=flags
        )


def _last_line(commands: list[tuple[str, Ended]]) -> str:
    """What the last program that failed said last."""
    failed = [ended.output for _, ended in commands if ended.exit_code]
    lines = [line for line in (failed[-1].splitlines() if failed else []) if line.strip()]
    return lines[-1].strip() if lines else ""
