"""The service kube-proxy of the model machine: kube-log-runner, and kube-proxy.exe with what it asks of the cluster.

The sources: kubernetes at v1.36.0, cmd/kube-proxy/app and pkg/proxy/winkernel/proxier.go. It answers the service
manager before it reads anything, and waits for its network by itself, for as long as that takes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers, table
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.programs import log_file, words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.facts import read_version
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.yaml_text import read_yaml_map

if TYPE_CHECKING:
    from collections.abc import Generator

    from imagegen.rehearsal.machine.hns import Network
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

SERVICE = "kube-proxy"
_START_S, _TURN_S = 2.0, 1.0
_FLAGS = frozenset({"windows-service", "config"})


class _EndedError(Exception):
    """kube-proxy ended by itself, with these words."""


class KubeProxy:
    """The service of one machine, which reaches this cluster."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self._machine = machine
        self._cluster = cluster
        self._run: Generator[float, None, None] | None = None
        self.node = ""
        """The node whose addresses it takes for its own. Empty if it does not run."""
        self.network = ""
        """The network that it uses, or waits for."""
        self.is_serving = False
        """Whether it has its network, and follows the services of the cluster."""
        self.ends: list[str] = []
        machine.services.slow_programs[SERVICE] = self

    def begin(self) -> None:
        self._run = self._serve()
        self._step(self._run)

    def end(self) -> None:
        """The service was stopped."""
        self._run, self.node, self.network, self.is_serving = None, "", "", False

    def _step(self, run: Generator[float, None, None]) -> None:
        if run is not self._run:
            return
        try:
            delay = next(run, None)
        except _EndedError as error:
            self._fail(str(error))
            return
        if delay is not None:
            self._machine.later(delay, lambda: self._step(run))

    def _fail(self, message: str) -> None:
        self.ends.append(message)
        self.end()
        self._machine.services.ended(SERVICE)
        recovery = self._machine.services.failure_actions(SERVICE)
        if recovery and recovery.actions:
            self._machine.later(recovery.actions[-1][1] / 1000, self._restart)

    def _restart(self) -> None:
        # The service manager writes a failure to its log, and leaves it at that.
        with contextlib.suppress(RefusedByWindows):
            self._machine.services.start(SERVICE)

    def _serve(self) -> Generator[float, None, None]:
        command = self._machine.services.command(SERVICE)
        runner, *rest = words(command)
        if not runner.lower().endswith("\\kube-log-runner.exe"):
            raise UnknownCommandError(f"service {SERVICE} runs {runner}, of which the rehearsal has no model")
        while rest and rest[0].startswith("-"):
            rest.pop(0)
        program, *arguments = rest
        flags = {name: value for name, _, value in (word.lstrip("-").partition("=") for word in arguments)}
        version = minor_of(read_version(self._machine.files, program))
        yield _START_S
        if unknown := sorted(flags.keys() - _FLAGS):
            raise _EndedError(f"unknown flag: --{unknown[0]}")
        if "windows-service" not in flags:
            raise _EndedError(f"service {SERVICE} did not answer the service manager in time (error 1053)")
        self._machine.services.answered(SERVICE)
        self._write_log(log_file(self._machine.files, command), f"Starting kube-proxy of Kubernetes {version}")
        config = self._read_config(flags.get("config", ""))
        gates = _gates(config.get("featureGates", {}), version)
        self._connect(config)
        yield from self._wait_for_network(config["winkernel"], gates)
        self.is_serving = True

    def _read_config(self, path: str) -> dict[str, Any]:
        try:
            config = read_yaml_map(self._machine.files.read(path), path)
        except (RefusedByWindows, ConfigError, ValueError) as error:
            raise _EndedError(f"failed complete: {error}") from error
        if (config.get("kind"), config.get("mode")) != ("KubeProxyConfiguration", "kernelspace"):
            raise _EndedError(f"failed complete: {path} is no configuration of kube-proxy on Windows")
        return config

    def _connect(self, config: dict[str, Any]) -> None:
        """It reads its node at its start, and then follows the services."""
        path = config.get("clientConnection", {}).get("kubeconfig", "")
        name = config.get("hostnameOverride") or self._machine.host_name.lower()
        try:
            access = read_kubeconfig(self._machine.files.read(path), path)
            client = ApiClient(self._cluster, access.server, access.authority, access.token)
            client.get(f"/api/v1/nodes/{name}")
            client.get("/api/v1/services")
        except (RefusedByWindows, ValueError, ApiError) as error:
            raise _EndedError(f"failed to run Kube-Proxy: {error}") from error
        self.node = name

    def _wait_for_network(self, winkernel: dict[str, Any], gates: dict[str, bool]) -> Generator[float, None, None]:
        self.network = winkernel.get("networkName", "")
        if not self.network:
            raise _EndedError("environment variable KUBE_NETWORK and network-flag not initialized")
        while (network := self._find(self.network)) is None:
            yield _TURN_S
        if winkernel.get("enableDSR") and not gates["WinDSR"]:
            raise _EndedError("WinDSR feature gate not enabled")
        if network.type == "Overlay" and not gates["WinOverlay"]:
            raise _EndedError("WinOverlay feature gate not enabled")
        if network.type == "Overlay" and not winkernel.get("sourceVip"):
            raise _EndedError("source-vip flag not set")

    def _find(self, name: str) -> Network | None:
        try:
            return self._machine.hns.find(name)
        except RefusedByWindows as error:
            raise _EndedError(f"Windows kernel is not compatible for Kernel mode: {error}") from error

    def _write_log(self, path: str | None, line: str) -> None:
        if path:
            files = self._machine.files
            files.write(path, (files.read(path) if files.is_file(path) else b"") + f"{line}\n".encode())


def _gates(given: dict[str, bool], version: str) -> dict[str, bool]:
    known = {
        row["gate"]: numbers(version) >= numbers(row["on_since"]) for row in table("kubernetes")["kube_proxy_gates"]
    }
    if unknown := sorted(given.keys() - known.keys()):
        raise _EndedError(f"unrecognized feature gate: {unknown[0]}")
    return {**known, **given}
