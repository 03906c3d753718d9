"""Boots the image: starts a node from it on the cloud's and the cluster's stand-ins, twice, and judges what came up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.boot.guarded import list_guarded
from imagegen.boot.judge import judge
from imagegen.boot.log import find_complaints, find_user_data_complaints, has_metadata, has_run_user_data, judge_plugins
from imagegen.catalog.facts import minor as minor_of
from imagegen.rehearsal.boot import observe
from imagegen.rehearsal.boot.booted import Boot
from imagegen.rehearsal.boot.docker import HOST_NETWORK, NETWORK_S, look_at_docker, look_at_pods
from imagegen.rehearsal.boot.given_certificates import find_key_leaks
from imagegen.rehearsal.boot.gmsa import look_at_gmsa
from imagegen.rehearsal.boot.hyper_v import look_at_hyper_v
from imagegen.rehearsal.boot.images import start_pods
from imagegen.rehearsal.boot.kubelet import look_at_kubelet
from imagegen.rehearsal.boot.link_local import UNKNOWN, LinkLocal
from imagegen.rehearsal.boot.model import OwnScripts
from imagegen.rehearsal.boot.node import CLOUDBASE_INIT, Node
from imagegen.rehearsal.boot.pod_networks import (
    is_up,
    look_at_kube_proxy,
    look_at_kube_proxy_pods,
    look_at_pod_network,
    look_at_policies,
)
from imagegen.rehearsal.boot.release_record import look_at_sealing
from imagegen.rehearsal.boot.ssh import KEYS_PLUGIN, look_at_ssh
from imagegen.rehearsal.boot.updates import look_at_updates
from imagegen.rehearsal.boot.upkeep import NODE_S, Upkeep
from imagegen.rehearsal.boot.user_data import Join, make_user_data
from imagegen.rehearsal.boot.windows_settings import look_at_windows
from imagegen.rehearsal.boot.wins import look_at_wins
from imagegen.rehearsal.clouds import guest_agents, stand_in
from imagegen.rehearsal.machine.script_policy import runs_only_signed
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.calico import CalicoFelix, CalicoNode, CalicoPods
from imagegen.rehearsal.node.flanneld import Flanneld
from imagegen.rehearsal.node.hybrid_overlay import HybridOverlay
from imagegen.rehearsal.node.kube_proxy import KubeProxy
from imagegen.rehearsal.node.kube_proxy_pods import KubeProxyPods
from imagegen.rehearsal.node.kubeadm import make_kubeadm
from imagegen.rehearsal.node.kubelet import Kubelet
from imagegen.rehearsal.node.objects import config_version
from imagegen.rehearsal.node.pod_network_script import pod_network_scripts
from imagegen.rehearsal.node.pod_routes import make_cluster
from imagegen.rehearsal.node.reset_script import reset_scripts
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imagegen.boot.guarded import Guarded
    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.boot.model import Instance, Platform
    from imagegen.rehearsal.boot.user_data import UserData
    from imagegen.rehearsal.cloudbase_init.run import Runner

# An HTTP status from here on is an error.
_ERRORS: Final = 400
_NETBIOS_LENGTH: Final = 15


def boot_image(
    image: Image,
    runner: Runner,
    make_data: Callable[[Join], UserData] = make_user_data,
    change_instance: Callable[[Instance], Instance] = lambda instance: instance,
    keep_log: Callable[[str], object] = lambda _: None,
) -> Boot:
    """Start a node from the image. `make_data` makes its user data for the cluster that it joins, and
    `change_instance` changes what its creator gave it. `keep_log` is given the log of cloudbase-init in every case."""
    with make_cluster(image.kubernetes, image.network, image.flannel) as cluster:
        version = config_version(image.kubernetes)
        accounts = image.accounts_of_cluster.items()
        join = Join(
            *(cluster.endpoint, cluster.ca_cert_hash, cluster.token, version, image.before_join, image.after_join),
            sets_network=image.sets_network,
            network=image.network_of_cluster,
            kubeconfigs={path: cluster.kubeconfig(account).decode() for path, account in accounts},
            all_signed=runs_only_signed(image.machine),
        )
        if image.docker:
            arguments = image.docker.kubelet_arguments
            join = dataclasses.replace(join, socket=image.docker.socket, kubelet_arguments=arguments)
        booted = _boot(image, cluster, make_data(join), change_instance, runner, keep_log)
    # Complete only now, as the faults of the cloud's addresses are when these have ended.
    return dataclasses.replace(booted, unknown=(*booted.unknown, *dict.fromkeys(cluster.faults)))


def _boot(
    image: Image,
    cluster: Cluster,
    user_data: UserData,
    change_instance: Callable[[Instance], Instance],
    runner: Runner,
    keep_log: Callable[[str], object],
) -> Boot:
    cloud = stand_in(image.provider)
    instance = change_instance(cloud.make_instance(user_data.text))
    machine = image.machine.copy(runner.scratch / "node")
    platform = cloud.make_platform(instance, lambda: machine.age_s)
    # A cloud that asks for no report has nothing against a machine that sent none.
    wants_report = platform.refusal() is not None
    own = OwnScripts(frozenset(without_signature(data) for data in image.own_files.values() if data is not None))
    with LinkLocal(platform.hosts) as link:
        node = Node(
            machine,
            instance,
            platform,
            agents=guest_agents(image.provider),
            programs={"kubeadm.exe": make_kubeadm(cluster)},
            runner=runner,
            proxy=link.url,
            own_scripts=own,
            scripts={**pod_network_scripts(cluster), **reset_scripts()},
        )
        kubelet = Kubelet(machine, cluster)
        kube_proxy = KubeProxy(machine, cluster)
        Flanneld(machine, cluster)
        HybridOverlay(machine, cluster)
        CalicoNode(machine, cluster)
        felix = CalicoFelix(machine, cluster)
        pods = _Pods(
            CalicoPods(machine, cluster, image.calico_pods, lambda: kubelet.arguments),
            KubeProxyPods(machine, cluster, image.kube_proxy_pods),
        )
        around = image, cluster, instance, platform, user_data
        observed = _Observed(*around, node, kubelet, kube_proxy, felix, pods, link, wants_report)
        try:
            found = _start_twice(observed)
        finally:
            # Where an error ends the boot, such as a cloudbase-init that hangs, the log is needed most.
            log = observed.read_log()
            keep_log(log)
    strange = dict.fromkeys([*node.runs.unknown, *link.faults])
    # What was interrupted proves nothing of what comes after it.
    verdicts = () if node.runs.was_interrupted else tuple(judge(found, list_guarded(image.layout)))
    limits = tuple(dict.fromkeys(own.limits))
    return Boot(image, machine, verdicts, node.runs.version, runner.reason, tuple(strange), log, limits)


def _start_twice(observed: _Observed) -> facts.NodeFacts:
    node = observed.node
    node.start_first()
    if node.runs.setup_failure:
        return observed.collect()
    observed.pods.begin()
    node.pass_time(observed.is_up, NODE_S)
    if observed.image.docker and observed.image.docker.host_network:
        node.pass_time(lambda: HOST_NETWORK in node.machine.hns.networks, NETWORK_S)
    return _start_again(observed, observed.collect())


def _start_again(observed: _Observed, found: facts.NodeFacts) -> facts.NodeFacts:
    """Start the machine again. Returns the facts with those about that, and with what is open or leaks only now."""
    node, before = observed.node, observed.snapshot()
    commands, crashes, logged = len(node.runs.commands), len(node.runs.crashes), len(observed.read_log())
    node.start_again()
    observed.pods.begin()
    node.pass_time(observed.is_up, NODE_S)
    log = observed.read_log()[logged:]
    changed = _lost(observed, found, log, node.runs.crashes[crashes:])
    return found.model_copy(
        update={
            "leaks": tuple(dict.fromkeys((*found.leaks, *observed.find_leaks()))),
            "key_leaks": tuple(dict.fromkeys((*found.key_leaks, *observed.find_key_leaks()))),
            "access": tuple(dict.fromkeys((*found.access, *observed.list_access()))),
            "user_data_of_restart": has_run_user_data(log),
            "commands_of_restart": tuple(dict.fromkeys(line for line, _ in node.runs.commands[commands:])),
            "changed_by_restart": (*changed, *before.changes(observed.snapshot())),
            **Upkeep(observed.image, node, observed.cluster, observed.pods.begin, observed.is_up).look_after(found),
            "refused_scripts": observe.find_refused_scripts(node.machine),
        }
    )


def _lost(observed: _Observed, first: facts.NodeFacts, log: str, crashes: Sequence[str]) -> Iterator[str]:
    """What was so after the first boot, and no longer is. `log` and `crashes` are those of the second boot."""
    before = first.cloudbase_init
    if before.has_metadata and not has_metadata(log):
        yield "that cloudbase-init finds a metadata service that answers"
    if before.is_done and not before.crash and (crashes or not observed.node.runs.is_done):
        yield f"that cloudbase-init ends{f' ({crashes[-1]})' if crashes else ''}"
    if first.kubelet.is_running and not observed.kubelet.is_running:
        yield "that kubelet runs"
    later = observed.look_at_pod_network()
    if not (first.pod_network.unready or first.pod_network.refusal) and (reason := later.unready or later.refusal):
        yield f"that pods have a network ({reason})"
    if first.kube_proxy.node and not observed.look_at_kube_proxy().node:
        yield "that kube-proxy runs"


@dataclasses.dataclass(frozen=True)
class _Pods:
    """The DaemonSets of the cluster that the image needs."""

    calico: CalicoPods
    kube_proxy: KubeProxyPods

    def begin(self) -> None:
        """The machine has started."""
        self.calico.begin()
        self.kube_proxy.begin()


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
    kube_proxy: KubeProxy
    felix: CalicoFelix
    pods: _Pods
    link: LinkLocal
    wants_report: bool

    def collect(self) -> facts.NodeFacts:
        machine, runs, platform = self.node.machine, self.node.runs, self.platform
        first_label = self.instance.host_name.partition(".")[0]
        host_name = first_label[:_NETBIOS_LENGTH] if self.image.cuts_host_names else first_label
        docker_pods = look_at_pods(machine, self.image.docker, self.kubelet.arguments, self.image.layout)
        return facts.NodeFacts(
            setup=self._setup(),
            cloud=facts.Cloud(
                wants_report=self.wants_report,
                refusal=platform.refusal(),
                unanswered=tuple(dict.fromkeys(self._unanswered())),
            ),
            windows=look_at_windows(machine, self.image.wanted, self.image.layout),
            updates=look_at_updates(machine, self.image.updates),
            hyper_v=look_at_hyper_v(machine, self.image.hyper_v, self.kubelet.arguments),
            host_name=machine.host_name,
            wanted_host_name=host_name,
            cloudbase_init=self._cloudbase_init(),
            unrendered=tuple(observe.find_unrendered(machine)),
            scripts_of_agents=tuple(dict.fromkeys(runs.scripts_of_agents)),
            join=facts.Join(runs=len(runs.commands), failure=observe.read_failure(runs.commands)),
            kubelet=self._kubelet(),
            nodes=tuple(self.cluster.nodes),
            wanted_node=observe.find_wanted_node(self.user_data.text, self.instance.host_name, host_name),
            refused_scripts=observe.find_refused_scripts(machine),
            services=tuple(observe.look_at_services(machine, self.image.services)),
            wins=look_at_wins(machine, self.image.wins),
            gmsa=look_at_gmsa(machine, wanted=self.image.gmsa),
            ssh=look_at_ssh(machine, self.image.machine, self.image.ssh, self._keys()),
            docker=look_at_docker(machine, self.image.docker),
            docker_pods=docker_pods,
            credential_providers=tuple(self._credential_providers()),
            pods=tuple(start_pods(machine, self.image.pulled, docker_pods)),
            pod_network=self.look_at_pod_network(),
            kube_proxy=self.look_at_kube_proxy(),
            policies=look_at_policies(machine, self.felix, is_asked=self.image.has_policy),
            reached=tuple(observe.look_at_address(machine, platform.restricted, self.node.account)),
            leaks=self.find_leaks(),
            key_leaks=self.find_key_leaks(),
            access=self.list_access(),
            own_files=tuple(observe.look_at_own_files(machine, self.image.own_files)),
            builder=observe.look_for_builder(machine, self.image.machine, self.image.accounts),
            sealed=look_at_sealing(machine, self.image),
            user_data_of_restart=False,
            commands_of_restart=(),
            changed_by_restart=(),
        )

    def is_up(self) -> bool:
        """Whether kubelet runs, and the network of pods is up if the image has its plugin."""
        has_network = not self.image.network or is_up(self.node.machine, self.cluster)
        # Without a plugin of the image, kube-proxy waits for the network that the cluster brings.
        is_at_work = self.kube_proxy.is_serving if self.image.network else bool(self.kube_proxy.node)
        has_proxy = is_at_work or not self.image.has_kube_proxy
        has_proxy = has_proxy and (self.pods.kube_proxy.is_serving or not self.image.kube_proxy_pods)
        has_policy = self.felix.is_serving or not self.image.has_policy
        return self.kubelet.is_running and has_network and has_proxy and has_policy

    def look_at_pod_network(self) -> facts.PodNetwork:
        found = look_at_pod_network(self.node.machine, self.cluster, self.image.network, self.image.flannel)
        if found.unready and self.pods.calico.failure:
            return found.model_copy(update={"unready": f"{found.unready}; Calico's pods: {self.pods.calico.failure}"})
        return found

    def look_at_kube_proxy(self) -> facts.KubeProxy:
        if self.image.kube_proxy_pods:
            return look_at_kube_proxy_pods(self.pods.kube_proxy)
        return look_at_kube_proxy(self.node.machine, self.kube_proxy, is_asked=self.image.has_kube_proxy)

    def find_leaks(self) -> tuple[str, ...]:
        node = self.node
        return tuple(observe.find_leaks(node.machine, self.user_data.secrets, node.runs.console, self._guarded))

    def find_key_leaks(self) -> tuple[str, ...]:
        return tuple(find_key_leaks(self.node.machine, self.instance.certificates, self.node.runs.console))

    def list_access(self) -> tuple[facts.Access, ...]:
        return tuple(observe.list_access(self.node.machine, self._guarded))

    @property
    def _guarded(self) -> tuple[Guarded, ...]:
        return list_guarded(self.image.layout)

    def _credential_providers(self) -> Iterator[facts.CredentialProvider]:
        minor = minor_of(self.image.kubernetes)
        names = self.image.credential_providers
        return observe.look_at_credential_providers(self.node.machine, names, self.kubelet.arguments, minor)

    def _keys(self) -> list[str]:
        """The SSH keys of the metadata that cloudbase-init should write."""
        plugins = observe.read_settings(self.node.machine, CLOUDBASE_INIT).plugins
        return list(self.instance.public_keys.values()) if KEYS_PLUGIN in plugins else []

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
        cluster, folder = self.cluster, self.image.layout["kubelet"]
        return look_at_kubelet(self.node.machine, self.kubelet, folder, cluster.nodes.values())
