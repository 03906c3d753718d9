"""The verdict on a node: each case changes one thing about a node that came up, and expects every line that fails."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from imagegen.boot.check import Verdict
from imagegen.boot.facts import Access, CredentialProvider, Finding, NodeFacts, OwnFile, Pod, Reach, Service
from imagegen.boot.guarded import Guarded
from imagegen.boot.judge import CHECKS, judge
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = r"C:\cloudbase-init\log\cloudbase-init.log"
GUARDED = (Guarded(r"C:\closed", frozenset(), "B9"), Guarded(r"C:\open", frozenset({"Read"})))
USERS = "S-1-5-32-545"
PROVIDER = CredentialProvider(name="registry", is_registered=True, can_run=True)
TOOL = r"C:\tools\tool.exe"
READS = Access(path=TOOL, sid=USERS, rights="ReadAndExecute")
SERVICE = Service(name="tool", is_running=True, failure="", log=r"C:\logs\tool.log", readers=())
GOOD = NodeFacts.model_validate(
    {
        "setup": {"failure": None, "ran_complete_script": True, "first_boot": ()},
        "cloud": {"wants_report": True, "refusal": None, "unanswered": ()},
        "windows": {
            "time_zone": "UTC",
            "wanted_time_zone": "UTC",
            "dns_suffix": "nodes.example.com",
            "wanted_dns_suffix": "Nodes.example.com",
            "power_plan": "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c",
            "keeps_time": True,
            "dynamic_ports": {"tcp": 40000, "udp": 40001},
            "wanted_dynamic_ports": 40000,
            "given_ports": (),
            "scanned": (),
        },
        "updates": {"missing": (), "offered": (), "waits_for_restart": False, "proxy": ""},
        "hyper_v": {
            "wanted": "isolation",
            "service_runs": True,
            "has_commands": True,
            "runs_hypervisor": True,
            "missing_handlers": (),
            "missing_gate": "",
        },
        "host_name": "NODE-1",
        "wanted_host_name": "node-1",
        "refused_scripts": (),
        "cloudbase_init": {
            "version": "1.1.8",
            "started_early": False,
            "is_done": True,
            "crash": "",
            "restarts_forever": False,
            "has_metadata": True,
            "services": ("AzureService", "HttpService"),
            "plugins": {"MTUPlugin": "done", "SetHostNamePlugin": "done", "UserDataPlugin": "done"},
            "unreported": (),
            "debug": False,
            "log": LOG,
            "complaints": (),
            "user_data_complaints": (),
        },
        "unrendered": (),
        "scripts_of_agents": (),
        "kube_proxy": {"is_asked": True, "failure": "", "node": "node-1", "network": "cbr0", "waits": False},
        "policies": {"is_running": True, "failure": "", "networks": "cbr.*", "is_enforced": True},
        "pod_network": {"plugin": "win-bridge", "unready": "", "refusal": "", "missing_routes": ()},
        "join": {"runs": 1, "failure": ""},
        "kubelet": {
            "is_running": True,
            "failure": "",
            "arguments": ("--v=2", "--node-ip=10.0.0.4", "--cloud-provider=external"),
            "kubeadm_arguments": ("--cloud-provider=external", "--node-ip=10.0.0.4"),
            "lost_address": "",
            "keeps_log": True,
            "is_reached": True,
            "shares_volumes": True,
        },
        "nodes": ("node-1",),
        "wanted_node": "node-1",
        "services": (SERVICE,),
        "wins": {
            "is_running": True,
            "failure": "",
            "pipe": r"\\.\pipe\rancher_wins",
            "wanted_pipe": r"\\.\pipe\rancher_wins",
            "programs": (r"C:\K\a.exe",),
            "wanted_programs": (r"C:\k\a.exe",),
            "successor": "",
        },
        "ssh": {
            "is_running": True,
            "failure": "",
            "port": 22,
            "wanted_port": 22,
            "is_reached": True,
            "accepts_passwords": False,
            "keys_files": (r"C:\Users\capi\.ssh\authorized_keys",),
            "has_key": True,
            "logs_in": True,
            "host_keys": 3,
            "keys_of_image": (),
            "shell": r"C:\Windows\System32\cmd.exe",
            "wanted_shell": r"C:\Windows\system32\cmd.exe",
        },
        "gmsa": {
            "is_listed": True,
            "dll": r"C:\Windows\System32\plugin.dll",
            "has_dll": True,
            "surrogate": True,
            "is_open": False,
            "sources": (),
        },
        "docker": {
            "failure": "",
            "version": "28.5.1",
            "wanted_version": "28.5.1",
            "keeps_log": True,
            "lacks_network": False,
        },
        "docker_pods": {
            "name": "cri-dockerd",
            "failure": "",
            "endpoint": "npipe:////./pipe/cri-dockerd",
            "kubelet_endpoint": "npipe:////./pipe/cri-dockerd",
            "plugin": "cni",
            "folders": (r"C:\bin", r"C:\net.d"),
            "wanted_folders": (r"C:\bin", r"C:\net.d"),
            "sandbox_image": "pause:1",
            "wanted_sandbox_image": "pause:1",
        },
        "credential_providers": (PROVIDER,),
        "pods": (Pod(image="", failure=""), Pod(image="a.example.com/b:1", failure="")),
        "reached": (
            Reach(account="a container", address="192.0.2.1", port=80, may=False, can=False),
            Reach(account="cloudbase-init's account", address="192.0.2.1", port=80, may=True, can=True),
        ),
        "leaks": (),
        "key_leaks": (),
        "access": (
            Access(path=r"C:\closed", sid="S-1-5-18", rights="FullControl"),
            Access(path=r"C:\open", sid=USERS, rights="Read"),
        ),
        "own_files": (OwnFile(path=TOOL, state="there", access=(READS,)),),
        "builder": {"listeners": (), "certificates": (), "rules": (), "accounts": (), "profiles": ()},
        "sealed": {"leftovers": (), "record": {"failure": "", "wrong": ()}},
        "user_data_of_restart": False,
        "commands_of_restart": (),
        "changed_by_restart": (),
        "drift": {
            "exit_code": 0,
            "found": (),
            "planted": TOOL,
            "planted_code": 5,
            "found_planted": (f"tools/file:{TOOL}",),
        },
        "rejoin": {"failure": "", "left": (), "is_up": True, "nodes": ("node-1",), "drifted": ()},
        "upgrade": {"failure": "", "version": "1.36.5", "wanted": "1.36.5"},
    }
)
FAILED_SETUP = Finding(text="the answer file is invalid", row="B12")


def change(facts: NodeFacts, changes: Mapping[str, object]) -> NodeFacts:
    """The facts with other values: `join.runs` is a field of `join`."""
    found = facts.model_dump(round_trip=True)
    for path, value in changes.items():
        *above, last = path.split(".")
        holder = found
        for name in above:
            holder = holder[name]
        assert last in holder, path
        holder[last] = value
    return NodeFacts.model_validate(found)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is changed, and the lines of the checks that fail."""

    name: str
    changes: Mapping[str, object]
    lines: tuple[str, ...]


def plugins(**ends: str) -> dict[str, object]:
    return {
        "cloudbase_init.plugins": {"MTUPlugin": "done", "SetHostNamePlugin": "done", "UserDataPlugin": "done"} | ends
    }


def access(*found: tuple[str, str, str]) -> dict[str, object]:
    return {"access": tuple(Access(path=path, sid=sid, rights=rights) for path, sid, rights in found)}


def reach(*, may: bool, can: bool) -> dict[str, object]:
    return {"reached": (Reach(account="a container", address="192.0.2.1", port=8080, may=may, can=can),)}


def service(**changes: object) -> dict[str, object]:
    return {"services": (SERVICE.model_copy(update=changes),)}


# In the order of the checks, and of their branches.
CASES = (
    Case("setup ended early", {"setup.failure": FAILED_SETUP}, ("setup: the answer file is invalid (B12)",)),
    Case(
        "nothing of the updates is as the config has it",
        {
            "updates.missing": ("KB1",),
            "updates.offered": ("KB2", "KB3"),
            "updates.waits_for_restart": True,
            "updates.proxy": "http=a:1",
        },
        (
            "updates: Windows has not the updates KB1; Windows Update still offers KB2, KB3; an update waits for a "
            "restart; WinHTTP still has the proxy of the build: http=a:1",
        ),
    ),
    Case(
        "nothing of Hyper-V is there",
        {
            "hyper_v.service_runs": False,
            "hyper_v.has_commands": False,
            "hyper_v.runs_hypervisor": False,
            "hyper_v.missing_handlers": ("a", "b", "c", "d"),
            "hyper_v.missing_gate": "HyperVContainer",
        },
        (
            "hyper-v: the service of Hyper-V does not run (N13); PowerShell has no commands of Hyper-V (N13); the "
            "hypervisor does not run, so no pod can be isolated (N13); containerd has no handler a, b, c and 1 more; "
            "kubelet runs without the feature gate HyperVContainer",
        ),
    ),
    Case(
        "the hypervisor runs beside the tools",
        {"hyper_v.wanted": "tools"},
        ("hyper-v: the hypervisor runs, and the config has only the tools (N13)",),
    ),
    Case(
        "docker",
        {
            "docker.failure": "service docker does not run",
            "docker.version": "19.03.5",
            "docker.keeps_log": False,
            "docker.lacks_network": True,
        },
        (
            "docker: Docker does not answer: service docker does not run; the image has Docker 19.03.5, expected "
            "28.5.1; "
            "Docker's entries in the event log have no text; Docker has no network named host, which pods with the "
            "host's network join",
        ),
    ),
    Case("no Docker", {"docker.version": ""}, ("docker: the image has no dockerd.exe, expected Docker 28.5.1",)),
    Case(
        "cri-dockerd",
        {
            "docker_pods.failure": "nssm.exe cannot start it",
            "docker_pods.kubelet_endpoint": "npipe:////./pipe/x",
            "docker_pods.plugin": "",
            "docker_pods.folders": (r"C:\k", r"C:\net.d"),
            "docker_pods.sandbox_image": "pause:2",
        },
        (
            "cri-dockerd: cri-dockerd does not answer: nssm.exe cannot start it; kubelet connects to "
            "npipe:////./pipe/x, and cri-dockerd answers at npipe:////./pipe/cri-dockerd; cri-dockerd asks no network "
            r"plugin; cri-dockerd looks for network plugins in C:\k and C:\net.d, expected C:\bin and C:\net.d; "
            "cri-dockerd starts pods with pause:2, expected pause:1",
        ),
    ),
    Case(
        "kubelet asks Docker itself",
        {"docker_pods.name": "kubelet", "docker_pods.sandbox_image": "pause:2"},
        ("docker: kubelet starts pods with pause:2, expected pause:1",),
    ),
    Case(
        "setup ended early, and so nothing else is judged",
        {"setup.failure": FAILED_SETUP, "nodes": (), "leaks": (LOG,), "setup.ran_complete_script": False},
        ("setup: the answer file is invalid (B12)",),
    ),
    Case(
        "no SetupComplete.cmd",
        {"setup.ran_complete_script": False, "setup.first_boot": None},
        (
            "setup: the image has no SetupComplete.cmd, so Windows Setup starts neither first-boot.ps1 nor "
            "cloudbase-init",
        ),
    ),
    Case(
        "no log of first-boot.ps1",
        {"setup.first_boot": None},
        ("setup: SetupComplete.cmd did not start first-boot.ps1",),
    ),
    Case(
        "first-boot.ps1 failed in three parts",
        {"setup.first_boot": ("one", "two", "three")},
        ("setup: first-boot.ps1 could not do everything: one, two, three",),
    ),
    Case(
        "first-boot.ps1 failed in five parts",
        {"setup.first_boot": ("one", "two", "three", "four", "five")},
        ("setup: first-boot.ps1 could not do everything: one, two, three and 2 more",),
    ),
    Case(
        "cloudbase-init did not run",
        {"cloudbase_init.version": "", "cloudbase_init.has_metadata": False, "cloudbase_init.started_early": True},
        (
            "cloudbase-init: cloudbase-init did not run: nothing started its service",
            "user-data: no user data ran, because cloudbase-init did not run",
        ),
    ),
    Case(
        "cloudbase-init could not start",
        {"cloudbase_init.version": "", "cloudbase_init.crash": "its account does not exist"},
        (
            "cloudbase-init: cloudbase-init did not run: its account does not exist",
            "user-data: no user data ran, because cloudbase-init did not run",
        ),
    ),
    Case(
        "cloudbase-init started early, and ended",
        {"cloudbase_init.started_early": True},
        (
            "cloudbase-init: cloudbase-init was started before Windows Setup had ended: its service is automatic in "
            "the image",
        ),
    ),
    Case(
        "no metadata service answers",
        {"cloudbase_init.has_metadata": False, "cloudbase_init.crash": "ended", "cloudbase_init.is_done": False},
        (
            "cloudbase-init: cloudbase-init found no metadata service that answers. Configured: AzureService, "
            "HttpService",
        ),
    ),
    Case(
        "the cloud refuses requests",
        {
            "cloudbase_init.has_metadata": False,
            "cloudbase_init.services": (),
            "cloud.unanswered": ("a token is required",),
        },
        (
            "cloudbase-init: cloudbase-init found no metadata service that answers. Configured: none. The cloud "
            "refused its requests: a token is required",
        ),
    ),
    Case(
        "cloudbase-init crashed",
        {"cloudbase_init.crash": "KeyError: 'x'", "cloudbase_init.is_done": False},
        ("cloudbase-init: cloudbase-init did not come to its end: KeyError: 'x'",),
    ),
    Case(
        "cloudbase-init restarts for ever",
        {"cloudbase_init.restarts_forever": True, "cloudbase_init.is_done": False},
        ("cloudbase-init: cloudbase-init asks for a restart at every start",),
    ),
    Case(
        "cloudbase-init was stopped",
        {"cloudbase_init.is_done": False},
        ("cloudbase-init: cloudbase-init did not come to its end",),
    ),
    Case("a plugin failed", plugins(MTUPlugin="failed"), ("cloudbase-init: MTUPlugin failed",)),
    Case("a plugin did not run", plugins(MTUPlugin="not run"), ("cloudbase-init: MTUPlugin did not run",)),
    Case(
        "a plugin of which a complaint says more",
        {
            **plugins(MTUPlugin="failed", SetHostNamePlugin="failed"),
            "cloudbase_init.complaints": (Finding(text="MTUPlugin failed: no DHCP", row="B3"),),
        },
        ("cloudbase-init: MTUPlugin failed: no DHCP (B3); SetHostNamePlugin failed",),
    ),
    Case(
        "causes of cloudbase-init are before effects",
        {
            "cloudbase_init.started_early": True,
            "cloudbase_init.complaints": (Finding(text="there is no plugin x.Y"),),
            "cloudbase_init.is_done": False,
            **plugins(MTUPlugin="not run"),
        },
        (
            "cloudbase-init: cloudbase-init was started before Windows Setup had ended: its service is automatic in "
            "the image; there is no plugin x.Y; cloudbase-init did not come to its end; MTUPlugin did not run",
        ),
    ),
    Case(
        "templates were not rendered",
        {"unrendered": (r"C:\run\a", r"C:\run\b")},
        (
            "user-data: "
            + "; ".join(
                rf"a template in C:\run\{name} was not rendered: cloudbase-init renders templates in user data of one "
                "part only. Write the values out (B2)"
                for name in "ab"
            ),
        ),
    ),
    Case(
        "an agent ran a script too",
        {"scripts_of_agents": ("powershell",)},
        (
            "user-data: the <powershell> script of the user data ran twice: the cloud's own agent runs such a script "
            "too (B5)",
        ),
    ),
    Case(
        "the log complains, and the plugin failed for that",
        {
            **plugins(UserDataPlugin="failed"),
            "cloudbase_init.user_data_complaints": (Finding(text="no boothook runs", row="B4"),),
        },
        ("user-data: no boothook runs (B4)",),
    ),
    Case(
        "the log complains, and the plugin did not run",
        {
            **plugins(UserDataPlugin="not run"),
            "cloudbase_init.user_data_complaints": (Finding(text="no boothook runs", row="B4"),),
        },
        ("user-data: no boothook runs (B4); no user data ran: UserDataPlugin did not run",),
    ),
    Case("user data failed", plugins(UserDataPlugin="failed"), ("user-data: UserDataPlugin failed",)),
    Case(
        "user data did not run",
        plugins(UserDataPlugin="not run"),
        ("user-data: no user data ran: UserDataPlugin did not run",),
    ),
    Case(
        "no plugin for user data",
        {"cloudbase_init.plugins": {"SetHostNamePlugin": "done"}},
        ("user-data: no user data ran: the list of plugins has no UserDataPlugin",),
    ),
    Case(
        "the cloud refuses the machine",
        {"cloud.refusal": "OSProvisioningTimedOut"},
        ("ready: the cloud says: OSProvisioningTimedOut",),
    ),
    Case(
        "nothing is reported to the cloud",
        {"cloud.refusal": "OSProvisioningTimedOut", "cloudbase_init.unreported": ("started", "completed")},
        (
            "ready: cloudbase-init does not report to the cloud: started and completed must be true (B1); the cloud "
            "says: OSProvisioningTimedOut",
        ),
    ),
    Case(
        "options explain nothing where cloudbase-init did not run",
        {
            "cloud.refusal": "OSProvisioningTimedOut",
            "cloudbase_init.unreported": ("started", "completed"),
            "cloudbase_init.version": "",
        },
        (
            "cloudbase-init: cloudbase-init did not run: nothing started its service",
            "user-data: no user data ran, because cloudbase-init did not run",
            "ready: the cloud says: OSProvisioningTimedOut",
        ),
    ),
    Case("a cloud that takes the machine without a report", {"cloudbase_init.unreported": ("started",)}, ()),
    Case(
        "another host name",
        {"host_name": "WIN-1"},
        ("host-name: the host name is WIN-1, and the cloud gave node-1",),
    ),
    Case(
        "no plugin for the host name",
        {"host_name": "WIN-1", "cloudbase_init.plugins": {"UserDataPlugin": "done"}},
        ("host-name: the list of plugins has no SetHostNamePlugin; the host name is WIN-1, and the cloud gave node-1",),
    ),
    Case(
        "without cloudbase-init its plugins explain nothing",
        {"host_name": "WIN-1", "cloudbase_init.version": "", "cloudbase_init.plugins": {}},
        (
            "cloudbase-init: cloudbase-init did not run: nothing started its service",
            "user-data: no user data ran, because cloudbase-init did not run",
            "host-name: the host name is WIN-1, and the cloud gave node-1",
        ),
    ),
    Case(
        "a script that is not signed",
        {"refused_scripts": (r"C:\k\a.ps1: it is not signed",)},
        (r"signed-scripts: C:\k\a.ps1: it is not signed",),
    ),
    Case(
        "another time zone",
        {"windows.time_zone": "Pacific Standard Time"},
        ("time-zone: the time zone is Pacific Standard Time, and the config has UTC",),
    ),
    Case(
        "another DNS suffix",
        {"windows.dns_suffix": ""},
        ("dns-suffix: the DNS suffix is '', and the config has Nodes.example.com",),
    ),
    Case(
        "another power plan",
        {"windows.power_plan": "381b4222"},
        ("power: the power plan is 381b4222, not high performance",),
    ),
    Case(
        "no time service",
        {"windows.keeps_time": False},
        ("time-service: the time service does not run, so the clock drifts and certificates seem invalid",),
    ),
    Case(
        "too few ports",
        {"windows.dynamic_ports": {"tcp": 16384, "udp": 40000}},
        ("ports: programs can get 16384 tcp ports, and need 40000",),
    ),
    Case(
        "ports of others",
        {"windows.given_ports": ("UDP 65330: dropped",)},
        ("ports: a program can get the ports UDP 65330: dropped",),
    ),
    Case(
        "Defender slows kubelet down",
        {"windows.scanned": (r"C:\k\kubelet.exe",)},
        (r"defender: Defender scans the files that C:\k\kubelet.exe opens",),
    ),
    Case("kubeadm did not run", {"join.runs": 0, "join.failure": "old"}, ("join: kubeadm did not run",)),
    Case("kubeadm failed", {"join.failure": "no such host"}, ("join: kubeadm failed: no such host",)),
    Case(
        "kubeadm has no administrator",
        {"join.failure": "The user name could not be found"},
        ("join: kubeadm failed: The user name could not be found (B10)",),
    ),
    Case(
        "kubelet does not run, and kubeadm waited for it",
        {"join.failure": "timed out", "kubelet.is_running": False, "kubelet.failure": "unknown flag: --x"},
        (
            "join: kubelet does not run: unknown flag: --x. kubeadm failed: timed out (N8)",
            "kubelet: kubelet does not run: unknown flag: --x (N8)",
        ),
    ),
    Case(
        "kubelet did not start, and kubeadm waited for it",
        {"join.failure": "timed out", "kubelet.is_running": False},
        ("join: kubeadm failed: timed out", "kubelet: kubelet does not run"),
    ),
    Case(
        "kubelet ended, and kubeadm had failed before",
        {
            "join.failure": "no such host",
            "kubelet.is_running": False,
            "kubelet.failure": "no config.yaml",
            "kubelet.kubeadm_arguments": (),
        },
        ("join: kubeadm failed: no such host", "kubelet: kubelet does not run: no config.yaml"),
    ),
    Case(
        "kubeadm failed, and kubelet came up at its second start",
        {"join.failure": "no such host", "kubelet.failure": "no config.yaml"},
        ("join: kubeadm failed: no such host",),
    ),
    Case(
        "a kubelet that does not run has no arguments",
        {"kubelet.is_running": False, "kubelet.arguments": ()},
        ("kubelet: kubelet does not run",),
    ),
    Case(
        "a feature gate that needs another",
        {"kubelet.is_running": False, "kubelet.failure": "A depends on features that are disabled: B"},
        ("kubelet: kubelet does not run: A depends on features that are disabled: B (N7)",),
    ),
    Case(
        "a kubelet without a log",
        {"kubelet.keeps_log": False},
        ("kubelet: kubelet keeps no log",),
    ),
    Case(
        "a kubelet that the API server does not reach",
        {"kubelet.is_reached": False},
        ("kubelet: Windows' firewall blocks TCP port 10250, where the API server asks kubelet for logs and metrics",),
    ),
    Case(
        "containers that may not use their volumes",
        {"kubelet.shares_volumes": False},
        ("kubelet: containers may not write to their volumes, which are in kubelet's folder pods",),
    ),
    Case(
        "kubelet without one of kubeadm's arguments",
        {"kubelet.arguments": ("--v=2", "--node-ip=10.0.0.4")},
        ("kubelet: kubelet runs without the arguments that kubeadm wrote: --cloud-provider=external (N4)",),
    ),
    Case(
        "kubelet without kubeadm's arguments",
        {"kubelet.arguments": ()},
        (
            "kubelet: kubelet runs without the arguments that kubeadm wrote: --cloud-provider=external "
            "--node-ip=10.0.0.4 (N4)",
        ),
    ),
    Case(
        "an address that the machine has not",
        {"kubelet.lost_address": "10.0.0.4"},
        ("node: the cluster does not know the address 10.0.0.4 of --node-ip: no network card has it",),
    ),
    Case("no node", {"nodes": ()}, ("node: no node registered with the cluster",)),
    Case(
        "another node",
        {"nodes": ("win-1", "node-1")},
        ("node: the cluster has node win-1, node-1, expected node-1",),
    ),
    Case(
        "user data before the host name",
        {"nodes": ("win-1",), "cloudbase_init.plugins": {"UserDataPlugin": "done", "SetHostNamePlugin": "done"}},
        (
            "node: the machine joined before it had its name: UserDataPlugin is before SetHostNamePlugin in the list "
            "of plugins; the cluster has node win-1, expected node-1",
        ),
    ),
    *(
        Case(
            f"another node, and {names} is the only plugin",
            {"nodes": ("win-1",), "cloudbase_init.plugins": {names: "done"}},
            (*lines, "node: the cluster has node win-1, expected node-1"),
        )
        for names, lines in (
            ("SetHostNamePlugin", ("user-data: no user data ran: the list of plugins has no UserDataPlugin",)),
            ("UserDataPlugin", ()),
        )
    ),
    Case(
        "user data before the host name does no harm where the node has the right name",
        {"cloudbase_init.plugins": {"UserDataPlugin": "done", "SetHostNamePlugin": "done"}},
        (),
    ),
    Case(
        "a credential provider that kubelet does not know",
        {"credential_providers": (PROVIDER.model_copy(update={"is_registered": False, "can_run": False}),)},
        ("credential-providers: kubelet does not know the credential provider registry (N14)",),
    ),
    Case(
        "a credential provider without its program",
        {"credential_providers": (PROVIDER.model_copy(update={"can_run": False}),)},
        ("credential-providers: kubelet cannot start the credential provider registry: its program is missing (N14)",),
    ),
    Case(
        "a node without the network of its pods",
        {"pod_network.unready": "cni plugin not initialized", "pod_network.refusal": "x"},
        ("pod-network: the node is not ready: cni plugin not initialized",),
    ),
    Case(
        "a kube-proxy that ended",
        {"kube_proxy.failure": "source-vip flag not set", "kube_proxy.node": ""},
        ("kube-proxy: kube-proxy does not run: source-vip flag not set",),
    ),
    Case(
        "a kube-proxy that nothing started",
        {"kube_proxy.node": ""},
        ("kube-proxy: kube-proxy does not run: nothing started its service",),
    ),
    Case(
        "the kube-proxy of another node",
        {"kube_proxy.node": "node-2"},
        ("kube-proxy: kube-proxy runs for node node-2, and the node is node-1",),
    ),
    Case(
        "a kube-proxy without its network",
        {"kube_proxy.waits": True},
        ("kube-proxy: kube-proxy waits for the network cbr0, which does not exist",),
    ),
    Case(
        "policies that nothing enforces",
        {"policies.is_running": False, "policies.failure": "cannot find config.ps1", "policies.is_enforced": False},
        ("network-policies: nothing enforces network policies: cannot find config.ps1",),
    ),
    Case(
        "a service for policies that nothing started",
        {"policies.is_running": False},
        ("network-policies: nothing enforces network policies: nothing started the service CalicoFelix",),
    ),
    Case(
        "policies of another network",
        {"policies.is_enforced": False},
        ("network-policies: network policies are enforced in networks named cbr.*, and the pods are in another one",),
    ),
    Case(
        "a pod without an address",
        {"pod_network.refusal": "network cbr0 is not found"},
        ("pod-network: a pod gets no address: network cbr0 is not found",),
    ),
    Case(
        "a node whose pods cannot reach another node",
        {"pod_network.missing_routes": ("the node has no route to 10.244.0.0/24, the pods of other",)},
        ("pod-routes: the node has no route to 10.244.0.0/24, the pods of other",),
    ),
    Case(
        "a service that does not run",
        service(is_running=False, failure="cannot find its program"),
        ("services: service tool does not run: cannot find its program",),
    ),
    Case(
        "a service that does not run for no known reason",
        service(is_running=False, log="", readers=(USERS,)),
        ("services: service tool does not run",),
    ),
    Case("a service without a log", service(log=""), ("services: service tool keeps no log",)),
    Case(
        "a service whose log is open",
        service(readers=(USERS,)),
        (r"services: others than administrators may read or write C:\logs\tool.log, the log of tool",),
    ),
    Case("wins that does not run", {"wins.is_running": False}, ("wins: wins does not run",)),
    Case(
        "a plugin of gMSAs that Windows does not load",
        {"gmsa.is_listed": False, "gmsa.is_open": True},
        (
            r"gmsa: Windows does not load the plugin of gMSAs: its class is not below Control\CCG\COMClasses; "
            "administrators can change the list of plugins of gMSAs: its key was not restored",
        ),
    ),
    Case(
        "a plugin of gMSAs without a class",
        {"gmsa.dll": "", "gmsa.has_dll": False, "gmsa.surrogate": False},
        ("gmsa: the class of the plugin of gMSAs is not registered",),
    ),
    Case(
        "a plugin of gMSAs without its DLL",
        {"gmsa.has_dll": False},
        (r"gmsa: the plugin of gMSAs is registered as C:\Windows\System32\plugin.dll, which is missing",),
    ),
    Case(
        "a plugin of gMSAs that cannot start, and whose events have no source",
        {"gmsa.surrogate": False, "gmsa.sources": ("one", "two")},
        (
            "gmsa: the class of the plugin of gMSAs has no process to run in; Windows does not know the source of "
            "events one, two",
        ),
    ),
    Case(
        "sshd that does not run",
        {"ssh.is_running": False, "ssh.failure": "it is gone", "ssh.accepts_passwords": True},
        ("ssh: sshd does not run: it is gone",),
    ),
    Case("sshd that does not run for no known reason", {"ssh.is_running": False}, ("ssh: sshd does not run",)),
    Case(
        "sshd on another port",
        {"ssh.port": 2222, "ssh.is_reached": False},
        ("ssh: sshd listens on port 2222, and the config has 22",),
    ),
    Case("sshd behind the firewall", {"ssh.is_reached": False}, ("ssh: Windows' firewall blocks port 22 of sshd",)),
    Case(
        "sshd with passwords and without the machine's key",
        {"ssh.accepts_passwords": True, "ssh.logs_in": False},
        (
            "ssh: sshd accepts passwords; nobody can log in with the machine's key: sshd looks for it in "
            r"C:\Users\capi\.ssh\authorized_keys (B11)",
        ),
    ),
    Case(
        "sshd with the keys of the image",
        {"ssh.host_keys": 0, "ssh.keys_of_image": ("one",)},
        ("ssh: sshd has no key of the host; every node has the same key of the host: the image has one",),
    ),
    Case(
        "sshd with another shell",
        {"ssh.shell": ""},
        (r"ssh: an SSH session starts no program, and the config has C:\Windows\system32\cmd.exe",),
    ),
    Case(
        "pods that do not start",
        {"pods": (Pod(image="", failure="no pause"), Pod(image="a.example.com/b:1", failure="no layers"))},
        (
            "images: without a registry, no pod starts: no pause; "
            "without a registry, a pod of a.example.com/b:1 does not start: no layers",
        ),
    ),
    Case(
        "a container reaches the cloud's address",
        reach(may=False, can=True),
        ("cloud-address: a container can connect to 192.0.2.1, TCP port 8080 (N1)",),
    ),
    Case(
        "who may does not reach the cloud's address",
        reach(may=True, can=False),
        ("cloud-address: a container cannot connect to 192.0.2.1, TCP port 8080 (N1)",),
    ),
    Case(
        "a secret in a log",
        {"leaks": (r"C:\run.log", "the console on COM1")},
        (r"secrets: a secret of the user data is in C:\run.log, the console on COM1",),
    ),
    Case(
        "a secret in cloudbase-init's log",
        {"leaks": (LOG.upper(),)},
        (
            "secrets: cloudbase-init writes user data that it cannot use into its log (B8); a secret of the user data "
            rf"is in {LOG.upper()}",
        ),
    ),
    Case(
        "a secret in cloudbase-init's log with debug",
        {"leaks": (LOG,), "cloudbase_init.debug": True},
        (
            "secrets: cloudbase-init writes user data into its log, because debug is true (B7); a secret of the user "
            rf"data is in {LOG}",
        ),
    ),
    Case(
        "debug explains no secret in another file",
        {"leaks": (r"C:\run.log",), "cloudbase_init.debug": True},
        (r"secrets: a secret of the user data is in C:\run.log",),
    ),
    Case(
        "a key in a file",
        {"key_leaks": (r"C:\run.pfx", "the console on COM1")},
        (r"secrets: the private key of a certificate is in C:\run.pfx, the console on COM1",),
    ),
    Case("debug without a secret", {"cloudbase_init.debug": True}, ()),
    Case(
        "a program is gone, another has other bytes, and a third is open",
        {
            "own_files": (
                OwnFile(path="a", state="missing", access=()),
                OwnFile(path="b", state="changed", access=(READS,)),
                OwnFile(path="c", state="there", access=(Access(path="c", sid=USERS, rights="Write"),)),
            )
        },
        (
            "own-files: a is missing; b has other content; others than administrators may change c "
            "(S-1-5-32-545: Write)",
        ),
    ),
    Case(
        "the builder's access",
        {
            "builder.listeners": ("*+HTTPS",),
            "builder.certificates": ("1", "2", "3", "4"),
            "builder.rules": ("WinRM",),
            "builder.accounts": ("packer",),
        },
        (
            "builder: a WinRM listener is left: *+HTTPS; a certificate of the builder is left: 1, 2, 3 and 1 more; "
            "a firewall rule for WinRM is left: WinRM; an account of the builder that can log on is left: packer (B12)",
        ),
    ),
    *(
        Case(f"only {what}", {f"builder.{field}": ("one",)}, (f"builder: {what} is left: one{row}",))
        for field, what, row in (
            ("listeners", "a WinRM listener", ""),
            ("certificates", "a certificate of the builder", ""),
            ("rules", "a firewall rule for WinRM", ""),
            ("accounts", "an account of the builder that can log on", " (B12)"),
            ("profiles", "the profile of an account of the builder", " (B12)"),
        )
    ),
    Case(
        "left by the build",
        {"sealed.leftovers": ("a host key, a", "task b", "c", "d")},
        ("leftovers: the image still has a host key, a, task b, c and 1 more (G4)",),
    ),
    Case("no release record", {"sealed.record.failure": "there is none"}, ("release-record: there is none",)),
    Case(
        "a wrong release record",
        {"sealed.record.wrong": ("a is not there", "b has other bytes")},
        ("release-record: the release record is wrong: a is not there, b has other bytes",),
    ),
    Case(
        "a second join, and what it changed",
        {"commands_of_restart": ("kubeadm.exe join",), "changed_by_restart": ("account capi",)},
        ("second-boot: a second boot ran kubeadm.exe join; a second boot changed account capi",),
    ),
    Case(
        "commands are part of user data",
        {"commands_of_restart": ("kubeadm.exe join",), "user_data_of_restart": True},
        ("second-boot: a second boot ran kubeadm.exe join",),
    ),
    Case(
        "a node that only joined has drifted",
        {"drift.exit_code": 5, "drift.found": ("tools/path:C: is not on the PATH",)},
        ("drift: a node that only joined has drifted: tools/path:C: is not on the PATH",),
    ),
    Case(
        "-Check did not come to its end",
        {"drift.exit_code": 4},
        ("drift: -Check ended with 4, and found 0 resources that have drifted",),
    ),
    Case(
        "-Check finds no change, and another one",
        {"drift.planted_code": 0, "drift.found_planted": ()},
        (rf"drift: {TOOL} was changed, and -Check found nothing and ended with 0",),
    ),
    Case(
        "-Check takes another file for the changed one",
        {"drift.found_planted": (r"tools/file:C:\other",)},
        (rf"drift: {TOOL} was changed, and -Check found tools/file:C:\other and ended with 5",),
    ),
    Case(
        "the node does not join again",
        {"rejoin.failure": "kubeadm join ended with 1: no", "rejoin.is_up": False, "rejoin.nodes": ()},
        (
            "rejoin: a command failed: kubeadm join ended with 1: no; the node did not come up again (registered: "
            "nothing)",
        ),
    ),
    Case(
        "the node joins again under another name",
        {"rejoin.nodes": ("other",)},
        ("rejoin: the node did not come up again (registered: other)",),
    ),
    Case(
        "kubelet is not replaced",
        {"upgrade.failure": "Copy-Item ended with 1: no", "upgrade.version": "1.36.4"},
        ("upgrade: a command failed: Copy-Item ended with 1: no; the node runs kubelet 1.36.4, not 1.36.5",),
    ),
    Case(
        "a new kubelet does not run",
        {"upgrade.version": ""},
        ("upgrade: the node runs no kubelet, not 1.36.5",),
    ),
    Case(
        "a reset leaves something, and takes away something else",
        {"rejoin.left": ("network pods",), "rejoin.drifted": ("tools/path:C: is not on the PATH",)},
        (
            "rejoin: reset-node.ps1 left network pods; the node is no longer as its image: tools/path:C: is not on the "
            "PATH",
        ),
    ),
    Case(
        "user data runs again, whatever its commands are",
        {"user_data_of_restart": True},
        ("second-boot: a second boot ran the user data again",),
    ),
    Case(
        "a folder is open",
        access(
            (r"C:\closed\token", USERS, "Read"), (r"C:\open\x", USERS, "Modify"), (r"C:\closed\b", "S-1-1-0", "Read")
        ),
        (
            rf"closed-folders: others than administrators may read or write C:\closed\token ({USERS}: Read), "
            r"C:\closed\b (S-1-1-0: Read) (B9); others than administrators may read or write "
            rf"C:\open\x ({USERS}: Modify)",
        ),
    ),
)


def failed(facts: NodeFacts) -> list[Verdict]:
    return [verdict for verdict in judge(facts, GUARDED) if not verdict.passed]


def test_a_node_that_came_up_passes_every_check() -> None:
    assert failed(GOOD) == []
    assert {verdict.check.name: verdict.line for verdict in judge(GOOD, GUARDED)} == {
        "setup": "Windows Setup ended, and first-boot.ps1 did everything",
        "cloudbase-init": "cloudbase-init ran once and ended",
        "user-data": "the user data ran",
        "ready": "the cloud takes the machine for ready",
        "host-name": "the host name is the cloud's",
        "signed-scripts": "PowerShell ran only signed scripts, and refused none",
        "time-zone": "the time zone is the config's",
        "dns-suffix": "the DNS suffix is the config's",
        "power": "the power plan is high performance",
        "time-service": "the time service runs",
        "ports": "programs have enough ports, and none that is reserved",
        "updates": "Windows has the updates of the config",
        "hyper-v": "Hyper-V is there as the config has it",
        "defender": "Defender does not scan what kubelet and the container runtime open",
        "docker": "Docker runs, and starts pods as the config says",
        "cri-dockerd": "cri-dockerd runs, and kubelet connects to it",
        "join": "kubeadm joined the machine to the cluster",
        "kubelet": "kubelet runs with kubeadm's arguments, and the cluster and containers reach it",
        "node": "the node registered",
        "pod-network": "the node is ready, and a pod gets an address",
        "pod-routes": "pods of this node and of another one find each other",
        "kube-proxy": "kube-proxy runs for this node, as soon as the network of pods exists",
        "network-policies": "network policies are enforced in the network of pods",
        "credential-providers": "kubelet has the credential providers of the config, and can start them",
        "services": "the services that the config adds run, and keep logs that are closed to Users",
        "wins": "wins runs, and starts the programs of the config only",
        "gmsa": "the plugin of gMSAs is registered, and its key is closed again",
        "ssh": "sshd lets in who has the machine's key, accepts no password, and has keys of its own",
        "cloud-address": "the cloud's own address is closed to containers, and open to cloudbase-init",
        "images": "a pod of each pulled image starts while no registry can be reached",
        "secrets": "no secret of the user data is in a log",
        "own-files": "the programs and scripts of the config are there, and only administrators can change them",
        "builder": "nothing of the builder's access is left",
        "second-boot": "a second boot changes nothing",
        "leftovers": "nothing of the build is left in the image",
        "release-record": "the release record says what is on the node",
        "drift": "start.ps1 -Check finds no drift on the node, and finds a file that was changed",
        "rejoin": "after reset-node.ps1 the node joins again",
        "upgrade": "with the next patch release of kubelet in its place, the node runs it",
        "closed-folders": "the node's folders are closed to Users",
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_says_what_is_wrong(case: Case) -> None:
    assert tuple(verdict.line for verdict in failed(change(GOOD, case.changes))) == case.lines


def test_every_check_has_a_case_that_fails() -> None:
    names = {verdict.check.name for case in CASES for verdict in failed(change(GOOD, case.changes))}
    assert names == {verdict.check.name for verdict in judge(GOOD, GUARDED)}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cloud-address", {"reached": ()}),
        ("signed-scripts", {"refused_scripts": None}),
        ("time-zone", {"windows.wanted_time_zone": "", "windows.time_zone": "X"}),
        ("dns-suffix", {"windows.wanted_dns_suffix": "", "windows.dns_suffix": "X"}),
        ("ready", {"cloud.wants_report": False}),
        ("hyper-v", {"hyper_v": None}),
        ("updates", {"updates": None}),
        ("docker", {"docker": None}),
        ("cri-dockerd", {"docker_pods": None}),
        ("services", {"services": ()}),
        ("images", {"pods": ()}),
        ("kube-proxy", {"kube_proxy.is_asked": False, "kube_proxy.node": ""}),
        ("pod-network", {"pod_network.plugin": "", "pod_network.unready": "x"}),
        ("pod-routes", {"pod_network.missing_routes": None}),
        ("network-policies", {"policies": None}),
        ("wins", {"wins": None}),
        ("gmsa", {"gmsa": None}),
        ("ssh", {"ssh": None}),
        ("credential-providers", {"credential_providers": ()}),
        ("drift", {"drift": None}),
        ("rejoin", {"rejoin": None}),
        ("upgrade", {"upgrade": None}),
    ],
)
def test_without_its_subject_a_check_says_nothing(name: str, changes: Mapping[str, object]) -> None:
    names = [verdict.check.name for verdict in judge(change(GOOD, changes), GUARDED)]
    assert name not in names
    assert len(names) == len(CHECKS)


def test_without_files_of_the_operators_own_nothing_is_said_about_them() -> None:
    names = [verdict.check.name for verdict in judge(change(GOOD, {"own_files": ()}), GUARDED)]
    assert "own-files" not in names


def test_causes_are_judged_before_their_effects() -> None:
    order = [check.name for check in CHECKS]
    for earlier, later in (
        ("setup", "cloudbase-init"),
        ("cloudbase-init", "user-data"),
        ("cloudbase-init", "ready"),
        ("cloudbase-init", "host-name"),
        ("user-data", "join"),
        ("join", "kubelet"),
        ("kubelet", "node"),
    ):
        assert order.index(earlier) < order.index(later), (earlier, later)


def test_every_row_that_a_reason_names_is_explained() -> None:
    page = (REPOSITORY / "docs" / "reality.md").read_text()
    rows = {reason.row for case in CASES for found in failed(change(GOOD, case.changes)) for reason in found.reasons}
    assert [row for row in sorted(rows - {""}) if f"\n| {row} |" not in page] == []
