"""Boots the image: starts a node from it on the cloud's and the cluster's stand-ins, twice, and judges what came up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.boot.checks import Verdict, judge
from imagegen.boot.guarded import list_guarded
from imagegen.boot.log import find_complaints, find_user_data_complaints, has_metadata, has_run_user_data, judge_plugins
from imagegen.catalog.facts import paths
from imagegen.rehearsal.boot import observe
from imagegen.rehearsal.boot.link_local import UNKNOWN, LinkLocal
from imagegen.rehearsal.boot.node import CLOUDBASE_INIT, Node
from imagegen.rehearsal.boot.user_data import Join, make_user_data
from imagegen.rehearsal.boot.windows_settings import describe_wanted, look_at_windows
from imagegen.rehearsal.clouds import guest_agents, stand_in
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.kubeadm import make_kubeadm
from imagegen.rehearsal.node.kubelet import Kubelet
from imagegen.rehearsal.node.objects import config_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pydantic import JsonValue

    from imagegen.rehearsal.boot.model import Ended, Instance, Platform
    from imagegen.rehearsal.boot.user_data import UserData
    from imagegen.rehearsal.boot.windows_settings import Wanted
    from imagegen.rehearsal.cloudbase_init.run import Runner
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec

# An HTTP status from here on is an error.
_ERRORS: Final = 400
# How long kubelet's service may take to come up, with restarts after failures.
_KUBELET_S: Final = 300.0
_NETBIOS_LENGTH: Final = 15


@dataclasses.dataclass(frozen=True)
class Image:
    """A captured machine, and what the plan says of it."""

    machine: Machine
    provider: str
    kubernetes: str
    cloudbase_init: str
    layout: Mapping[str, str]
    """The image's folders by name."""
    wanted: Wanted
    """Of Windows."""
    cuts_host_names: bool = True
    """Whether cloudbase-init cuts host names to the length of a NetBIOS name."""
    accounts: Sequence[str] = ()
    """The accounts that the config expects on a node. They may log on as they could before."""


def describe_image(machine: Machine, spec: Spec) -> Image:
    """The image that a target's captured machine is."""
    config = spec.config
    return Image(
        machine,
        spec.provider,
        config.kubernetes.version,
        config.cloudbase_init.version,
        {**paths(), "kubernetes": config.kubernetes.install_path},
        describe_wanted(spec),
        config.host_names.netbios_compatible,
        spec.settings.restricted_address_users,
    )


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
        """What failed, causes first: where a program's effect is unknown, what comes after it proves nothing."""
        return [*self.unknown, *(verdict.line for verdict in self.verdicts if not verdict.passed)]

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


def boot_image(
    image: Image,
    runner: Runner,
    make_data: Callable[[Join], UserData] = make_user_data,
    change_instance: Callable[[Instance], Instance] = lambda instance: instance,
) -> Boot:
    """Start a node from the image. `make_data` makes its user data for the cluster that it joins, and
    `change_instance` changes what its creator gave it."""
    with Cluster(image.kubernetes) as cluster:
        join = Join(cluster.endpoint, cluster.ca_cert_hash, cluster.token, config_version(image.kubernetes))
        return _boot(image, cluster, make_data(join), change_instance, runner)


def _boot(
    image: Image,
    cluster: Cluster,
    user_data: UserData,
    change_instance: Callable[[Instance], Instance],
    runner: Runner,
) -> Boot:
    cloud = stand_in(image.provider)
    instance = change_instance(cloud.make_instance(user_data.text))
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
        observed = _Observed(image, cluster, instance, platform, user_data, node, kubelet, link)
        node.start_first()
        if not node.runs.setup_failure:
            node.pass_time(lambda: kubelet.is_running, _KUBELET_S)
        found = observed.collect()
        if not node.runs.setup_failure:
            found = found.model_copy(update=_start_again(observed))
        unknown = (f"the rehearsal does not know {entry.host}{entry.path}" for entry in link.unknown)
        strange = [*node.runs.unknown, *link.journal.faults, *unknown]
    log = observed.read_log()
    # What was interrupted proves nothing of what comes after it.
    verdicts = () if node.runs.was_interrupted else tuple(judge(found, list_guarded(image.layout)))
    return Boot(
        image, verdicts, node.runs.version, runner.reason, machine.boot_count, tuple(dict.fromkeys(strange)), log
    )


def _start_again(observed: _Observed) -> dict[str, tuple[str, ...] | bool]:
    """Start the machine again. Returns the facts about that."""
    node, kubelet, had_kubelet = observed.node, observed.kubelet, observed.kubelet.is_running
    before, commands, restarts = observed.snapshot(), len(node.runs.commands), node.runs.restarts_forever
    logged = len(observed.read_log())
    node.start_again()
    came_back = node.pass_time(lambda: kubelet.is_running, _KUBELET_S)
    changed = before.changes(observed.snapshot())
    changed += ["that kubelet runs"] if had_kubelet and not came_back else []
    changed += ["that cloudbase-init ends"] if node.runs.restarts_forever and not restarts else []
    ran = tuple(dict.fromkeys(line for line, _ in node.runs.commands[commands:]))
    return {
        "user_data_of_restart": has_run_user_data(observed.read_log()[logged:]),
        "commands_of_restart": ran,
        "changed_by_restart": tuple(changed),
    }


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
    link: LinkLocal

    def collect(self) -> facts.NodeFacts:
        machine, runs, platform = self.node.machine, self.node.runs, self.platform
        guarded = list_guarded(self.image.layout)
        first_label = self.instance.host_name.partition(".")[0]
        host_name = first_label[:_NETBIOS_LENGTH] if self.image.cuts_host_names else first_label
        return facts.NodeFacts(
            setup=self._setup(),
            cloud=facts.Cloud(
                refusal=platform.refusal(),
                unanswered=tuple(dict.fromkeys(self._unanswered())),
            ),
            windows=look_at_windows(machine, self.image.wanted, self.image.layout),
            host_name=machine.host_name,
            wanted_host_name=host_name,
            cloudbase_init=self._cloudbase_init(),
            unrendered=tuple(observe.find_unrendered(machine)),
            scripts_of_agents=tuple(dict.fromkeys(runs.scripts_of_agents)),
            join=facts.Join(runs=len(runs.commands), failure=_read_failure(runs.commands)),
            kubelet=self._kubelet(),
            nodes=tuple(self.cluster.nodes),
            wanted_node=observe.find_wanted_node(self.user_data.text, self.instance.host_name, host_name),
            reached=tuple(observe.look_at_address(machine, platform.restricted, self.node.account)),
            leaks=tuple(observe.find_leaks(machine, self.user_data.secrets, runs.console, guarded)),
            access=tuple(observe.list_access(machine, guarded)),
            builder=observe.look_for_builder(machine, self.image.machine, self.image.accounts),
            user_data_of_restart=False,
            commands_of_restart=(),
            changed_by_restart=(),
        )

    def _unanswered(self) -> Iterator[str]:
        for entry in self.link.journal.entries:
            if entry.status >= _ERRORS and entry.note and entry.note != UNKNOWN:
                yield entry.note

    def _setup(self) -> facts.Setup:
        runs = self.node.runs
        failure = runs.setup_failure
        # The answer file can start cloudbase-init.
        text = f"{failure}{f': {runs.crashes[-1]}' if runs.crashes else ''}"
        return facts.Setup(
            failure=facts.Finding(text=text, row=failure.row) if failure else None,
            ran_complete_script=runs.ran_complete_script,
            first_boot=observe.read_first_boot_log(self.node.machine),
        )

    def read_log(self) -> str:
        """The log of cloudbase-init, of all its starts."""
        return observe.read_text(self.node.machine, observe.read_settings(self.node.machine, CLOUDBASE_INIT).log)

    def snapshot(self) -> observe.Snapshot:
        nodes = {f"node {name}": str(sorted(node.labels.items())) for name, node in self.cluster.nodes.items()}
        folders = [self.image.layout[name] for name in ("etc_kubernetes", "kubelet")]
        return observe.take_snapshot(self.node.machine, CLOUDBASE_INIT, nodes, folders)

    def _cloudbase_init(self) -> facts.CloudbaseInit:
        machine, runs = self.node.machine, self.node.runs
        settings = observe.read_settings(machine, CLOUDBASE_INIT)
        log = self.read_log()
        return facts.CloudbaseInit(
            version=runs.version,
            started_early=runs.started_early,
            is_done=runs.is_done,
            crash=runs.crashes[-1] if runs.crashes else "",
            restarts_forever=runs.restarts_forever,
            has_metadata=has_metadata(log),
            services=settings.services,
            plugins=judge_plugins(settings.plugins, log),
            unreported=settings.unreported,
            debug=settings.debug,
            log=settings.log,
            complaints=find_complaints(log, has_keys=bool(self.instance.public_keys)),
            user_data_complaints=find_user_data_complaints(log),
        )

    def _kubelet(self) -> facts.Kubelet:
        flags = observe.read_kubeadm_arguments(self.node.machine, self.image.layout["kubelet"] + r"\kubeadm-flags.env")
        return facts.Kubelet(
            is_running=self.kubelet.is_running,
            failure=self.kubelet.ends[-1] if self.kubelet.ends else "",
            arguments=tuple(self.kubelet.arguments),
            kubeadm_arguments=flags,
        )


def _read_failure(commands: list[tuple[str, Ended]]) -> str:
    """What the last command said, if it failed: its errors, and without any its last line."""
    lines = [line.strip() for _, ended in commands[-1:] if ended.exit_code for line in ended.output.splitlines()]
    errors = [line for line in lines if line.startswith("[ERROR ")]
    return " ".join(errors or [line for line in lines if line][-1:])
