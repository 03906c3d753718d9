"""The program kubeadm.exe on the model machine: `kubeadm version`, `kubeadm join --config FILE`, `kubeadm reset` and
`kubeadm upgrade node`.

It knows its version from its own bytes on the machine's disk, and does what kubeadm of that minor does.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.catalog.facts import minor as minor_of
from imagegen.rehearsal.boot.model import Ended, Process, UnknownCommandError
from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.decode import KubeadmError
from imagegen.rehearsal.node.facts import reached, read_version
from imagegen.rehearsal.node.join import Join, Output
from imagegen.rehearsal.node.join_config import load_join
from imagegen.rehearsal.node.join_flags import parse_join_flags
from imagegen.rehearsal.node.preflight import find_faults, find_privilege_faults, find_warnings
from imagegen.rehearsal.node.reset import run_reset
from imagegen.rehearsal.node.upgrade import run_upgrade

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imagegen.rehearsal.boot.model import Program
    from imagegen.rehearsal.node.api_server import Cluster
    from imagegen.rehearsal.node.join_config import JoinConfiguration
    from imagegen.rehearsal.node.preflight import Finding

_FAILED, _PREFLIGHT, _VALIDATION = 1, 2, 3
# How long the checks take: a service that is being started meanwhile comes up.
_CHECKS_S = 1.0


def make_kubeadm(cluster: Cluster) -> Program:
    """The program for machines that reach this cluster. Its first argument is its own path."""
    return lambda process: _run(process, cluster)


def _run(process: Process, cluster: Cluster) -> Ended:
    version = read_version(process.machine.files, process.arguments[0])
    subcommand, arguments = (process.arguments[1:2] or [""])[0], process.arguments[2:]
    if subcommand == "version":
        return Ended(0, _version_text(version, arguments))
    if subcommand == "reset":
        return run_reset(process, arguments, minor_of(version))
    if subcommand == "upgrade":
        return run_upgrade(process, cluster, arguments, minor_of(version))
    if subcommand != "join":
        known = "`join`, `reset`, `upgrade node` and `version`"
        raise UnknownCommandError(f"kubeadm {subcommand}: the rehearsal knows {known} only")
    with process.machine.process("kubeadm"):
        return _Run(process, cluster, minor_of(version)).join(arguments)


def _version_text(version: str, arguments: Sequence[str]) -> str:
    if list(arguments) in (["-o", "short"], ["-o=short"], ["--output", "short"], ["--output=short"]):
        return f"v{version}\n"
    if arguments:
        raise UnknownCommandError(f"kubeadm version {' '.join(arguments)}: the rehearsal knows -o short only")
    major, minor, _ = version.split(".")
    return f'kubeadm version: &version.Info{{Major:"{major}", Minor:"{minor}", GitVersion:"v{version}"}}\n'


@dataclasses.dataclass
class _Run:
    process: Process
    cluster: Cluster
    minor: str
    output: Output = dataclasses.field(default_factory=Output)

    def join(self, arguments: Sequence[str]) -> Ended:
        phase = ""
        try:
            flags = parse_join_flags(arguments)
            configuration = self._load(flags)
            phase = "error execution phase preflight: "
            if not self._check(configuration, flags):
                return self._end(phase + "preflight checks failed", _PREFLIGHT)
            join = Join(self.process, self.cluster, self.minor, configuration, self.output)
            join.fetch()
            for name, run in join.phases():
                phase = f"error execution phase {name}: "
                run()
        except KubeadmError as error:
            return self._end(f"{phase}{error}", _VALIDATION if error.is_validation else _FAILED)
        except RefusedByWindows as error:
            return self._end(f"{phase}{error}", _FAILED)
        self.output.say("\nThis node has joined the cluster:")
        self.output.say("* Certificate signing request was sent to apiserver and a response was received.")
        self.output.say("* The Kubelet was informed of the new secure connection details.")
        return Ended(0, self.output.text)

    def _end(self, message: str, exit_code: int) -> Ended:
        self.output.say(message)
        return Ended(1 if reached(self.minor, "one_exit_code") else exit_code, self.output.text)

    def _load(self, flags: dict[str, str]) -> JoinConfiguration:
        if "config" not in flags:
            raise UnknownCommandError("kubeadm join without --config: the rehearsal has no model of it")
        if "cri-socket" in flags and reached(self.minor, "no_socket_flag_with_config"):
            raise KubeadmError("can not mix '--config' with arguments [cri-socket]")
        path = full_path(self.process.folder, flags["config"])
        if not self.process.machine.files.is_file(path):
            raise KubeadmError(
                f'unable to read config from "{flags["config"]}": open {flags["config"]}: The system cannot find the '
                "path specified."
            )
        configuration, warnings = load_join(
            self.process.machine.files.read(path),
            self.minor,
            self.process.machine,
            shown_as=flags["config"],
            name=flags.get("node-name", ""),
            socket=flags.get("cri-socket", ""),
        )
        for warning in warnings:
            self.output.warn(warning)
        return configuration

    def _check(self, configuration: JoinConfiguration, flags: dict[str, str]) -> bool:
        self.output.say("[preflight] Running pre-flight checks")
        given = flags.get("ignore-preflight-errors", "").lower().split(",")
        ignored = configuration.ignored_errors | set(given)
        if not self._judge(find_privilege_faults(self.process, self.minor), ignored):
            return False
        if not self._judge(find_faults(self.process, configuration, self.minor), ignored):
            return False
        for name, message in find_warnings(self.process):
            self.output.say(f"\t[WARNING {name}]: {message}")
        self.process.machine.wait_until(lambda: False, _CHECKS_S)
        return True

    def _judge(self, findings: Iterable[Finding], ignored: frozenset[str]) -> bool:
        faults = []
        for name, message in findings:
            if {name.lower(), "all"} & ignored:
                self.output.say(f"\t[WARNING {name}]: {message}")
            else:
                faults.append(f"\t[ERROR {name}]: {message}")
        if faults:
            self.output.say("\n".join(["[preflight] Some fatal errors occurred:", *faults]))
        return not faults
