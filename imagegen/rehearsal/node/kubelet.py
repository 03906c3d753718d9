"""The service kubelet of the model machine: kube-log-runner or nssm, start-kubelet.ps1, and kubelet.exe with what it
asks of the cluster. Its time is the machine's: it runs for as long as the machine's clock does.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from typing import TYPE_CHECKING

from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers, table
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import find_refusal
from imagegen.rehearsal.node.client import ApiError
from imagegen.rehearsal.node.facts import SERVICE, read_version
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.kubelet_options import check_kubelet, last_values, parse_arguments
from imagegen.rehearsal.node.node_module import need_module
from imagegen.rehearsal.node.pod_network import find_unready
from imagegen.rehearsal.node.registration import Registration, node_name
from imagegen.rehearsal.node.start_script import read_parameters, read_script, run_script

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

PIPE_TIMEOUT = (r"HKLM:\SYSTEM\CurrentControlSet\Control", "ServicesPipeTimeout")
# The service manager's patience where no value is set.
_PATIENCE_S = 30.0
# Windows PowerShell on a machine that has just started, and kubelet until it answers.
_POWERSHELL_S, _KUBELET_S = 5.0, 2.0
_RETRY_S = 5.0
# nodeStatusUpdateFrequency.
_REPORT_S = 10.0
_RUNNER, _NSSM = "kube-log-runner.exe", "nssm.exe"
# How long nssm waits at least before it starts its program again.
_THROTTLE_S = 1.5
# kubelet writes its log to standard error: https://pkg.go.dev/k8s.io/klog/v2
_NSSM_VALUES = ("Application", "AppParameters", "AppStderr")
_RUNNER_FLAGS = frozenset({"log-file", "also-stdout", "redirect-stderr"})
_RUNNER_ROTATION = frozenset({"log-file-size", "log-file-age", "flush-interval"})


class Kubelet:
    """The service of one machine. It is started by the machine's service manager, and registers with this cluster."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self._machine = machine
        self._cluster = cluster
        self._run: Generator[float, None, None] | None = None
        self._log_file = ""
        self._is_wrapped = False
        self.arguments: tuple[str, ...] = ()
        """The command line of the kubelet that runs, without the program."""
        self.starts = 0
        """How often kubelet.exe itself was started."""
        self.ends: list[str] = []
        """Why a start of the service, or kubelet, ended by itself."""
        machine.services.slow_programs[SERVICE] = self

    @property
    def is_running(self) -> bool:
        """Whether kubelet runs and answered the service manager."""
        return self._machine.services.is_serving(SERVICE)

    @property
    def keeps_log(self) -> bool:
        """Whether what it says goes to a file."""
        return bool(self._log_file)

    @property
    def is_serving(self) -> bool:
        """nssm answers whatever it runs."""
        return not self._is_wrapped or bool(self.arguments)

    def begin(self) -> None:
        """The service manager starts the service's program, and gives up if nothing answers in time."""
        self.arguments = ()
        run = self._run = self._serve()
        program, *_ = words(self._machine.services.command(SERVICE))
        self._is_wrapped = program.lower().endswith(f"\\{_NSSM}")
        if self._is_wrapped:
            self._machine.services.answered(SERVICE)
        configured = self._machine.registry.number(*PIPE_TIMEOUT)
        patience_s = _PATIENCE_S if configured is None else configured / 1000
        self._machine.later(patience_s, lambda: self._give_up(run))
        self._step(run)

    def end(self) -> None:
        """The service was stopped."""
        self._run, self.arguments = None, ()

    def _step(self, run: Generator[float, None, None]) -> None:
        """Let the program run until it waits for something."""
        if run is self._run and (delay := next(run, None)) is not None:
            self._machine.later(delay, lambda: self._step(run))

    def _give_up(self, run: Generator[float, None, None]) -> None:
        if run is self._run and self._machine.services.is_starting(SERVICE):
            self._fail(f"service {SERVICE} did not answer the service manager in time (error 1053)")

    def _fail(self, message: str) -> None:
        """The program ended. The service manager starts it again where the service's recovery says so."""
        self.ends.append(message)
        self.end()
        if self._is_wrapped:
            run = self._run = self._serve()
            delay_ms = self._machine.registry.number(self._parameters, "AppRestartDelay") or 0
            self._machine.later(max(_THROTTLE_S, delay_ms / 1000), lambda: self._step(run))
            return
        self._machine.services.ended(SERVICE)
        recovery = self._machine.services.failure_actions(SERVICE)
        if recovery and recovery.actions:
            _, delay_ms = recovery.actions[min(len(self.ends), len(recovery.actions)) - 1]
            self._machine.later(delay_ms / 1000, self._restart)

    def _restart(self) -> None:
        # The service manager writes a failure to its log, and leaves it at that.
        with contextlib.suppress(RefusedByWindows):
            self._machine.services.start(SERVICE)

    def _serve(self) -> Generator[float, None, None]:
        """Everything from the service's command line to the running kubelet. Yields the seconds that pass."""
        try:
            script_file, parameters = self._read_command()
            yield _POWERSHELL_S
            if not self._machine.files.is_file(script_file):
                raise KubeletError(f"The argument '{script_file}' to the -File parameter does not exist.")
            if why := find_refusal(self._machine, script_file):
                raise KubeletError(f"{script_file} cannot be loaded: {why}")
            script = read_script(self._machine.files.read(script_file), script_file)
            try:
                need_module(self._machine, script_file)
            except RefusedByWindows as refusal:
                raise KubeletError(f"start-kubelet: {refusal}") from refusal
            outcome = yield from run_script(self._machine, script, parameters, parent(script_file))
            if outcome.message:
                raise KubeletError(outcome.message)
            self.starts += 1
            yield _KUBELET_S
            yield from self._run_kubelet(outcome.program, outcome.arguments)
        except KubeletError as error:
            self._log(str(error))
            self._fail(str(error))

    @property
    def _parameters(self) -> str:
        """The registry key in which nssm looks for what it must do."""
        return rf"{self._machine.services.key(SERVICE)}\Parameters"

    def _read_command(self) -> tuple[str, dict[str, str]]:
        """The script of the service's command line and its parameters."""
        if self._is_wrapped:
            given = {name: self._machine.registry.text(self._parameters, name) or "" for name in _NSSM_VALUES}
            self._log_file = given["AppStderr"]
            if not given["Application"] or not self._machine.files.is_file(given["Application"]):
                raise KubeletError(f"{_NSSM} cannot start {given['Application']}")
            return _read_powershell([given["Application"], *words(given["AppParameters"])])
        runner, *rest = words(self._machine.services.command(SERVICE))
        if not runner.lower().endswith(f"\\{_RUNNER}"):
            raise UnknownCommandError(f"service {SERVICE} runs {runner}, of which the rehearsal has no model")
        version = minor_of(read_version(self._machine.files, runner))
        rotates = numbers(version) >= numbers(table("kubernetes")["since"]["log_rotation"]["minor"])
        known = _RUNNER_FLAGS | (_RUNNER_ROTATION if rotates else frozenset())
        self._log_file = ""
        while rest and rest[0].startswith("-"):
            name, _, value = rest.pop(0).lstrip("-").partition("=")
            if name not in known:
                raise KubeletError(f"{_RUNNER}: flag provided but not defined: -{name}")
            self._log_file = value if name == "log-file" else self._log_file
        return _read_powershell(rest)

    def _run_kubelet(self, program: str, arguments: Sequence[str]) -> Generator[float, None, None]:
        version = read_version(self._machine.files, program)
        minor = minor_of(version)
        values = last_values(parse_arguments(arguments, minor))
        check_kubelet(self._machine, values, minor)
        if self._is_wrapped and values.get("windows-service") == "true":
            raise KubeletError(
                "failed to run Kubelet: The service process could not connect to the service controller."
            )
        self.arguments = tuple(arguments)
        self._machine.services.answered(SERVICE)
        self._log(f"Starting kubelet v{version} as node {node_name(self._machine, values)}")
        registration = Registration(self._machine, self._cluster, values, version, self._log)
        for attempt in itertools.count(1):
            try:
                registration.run()
            except ApiError as error:
                self._log(f"Attempt {attempt} to register failed: {error}")
            else:
                break
            yield _RETRY_S
        told = find_unready(self._machine)
        while True:
            yield _REPORT_S
            found = find_unready(self._machine)
            if found != told:
                with contextlib.suppress(ApiError):
                    registration.report()
                    told = found
                    self._log(f"Node became not ready: {found}" if found else "Node became ready")

    def _log(self, line: str) -> None:
        files = self._machine.files
        if self._log_file:
            written = files.read(self._log_file) if files.is_file(self._log_file) else b""
            files.write(self._log_file, written + f"{line}\n".encode())


def _read_powershell(command: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The script that PowerShell is told to run and its parameters."""
    text = " ".join(command)
    if re.fullmatch(r"(?i)\S*\\powershell\.exe", text):
        # It reads commands from its standard input, which a service does not have.
        raise KubeletError(f"{text} has no script to run, and ends")
    options = r"(?: -(?:NoProfile|NonInteractive|ExecutionPolicy Bypass))*"
    found = re.fullmatch(rf"(?i)\S*\\powershell\.exe({options}) -File (\S+)(.*)", text)
    if found is None or not found[2].lower().endswith("\\start-kubelet.ps1"):
        raise UnknownCommandError(f"{_RUNNER} runs {text}, of which the rehearsal has no model")
    return found[2], read_parameters(found[3].split())
