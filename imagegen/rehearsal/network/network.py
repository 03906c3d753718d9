"""The private network: one proxy, the clouds and hosts behind it, and the environment of its child processes.

It uses one folder, for the CA file, and one loopback port. Some clouds keep their state in the process: only one
network with such a cloud can be open in a process at a time.
"""

from __future__ import annotations

import contextlib
import fnmatch
import threading
from typing import TYPE_CHECKING

from imagegen.rehearsal.network.authority import Authority
from imagegen.rehearsal.network.environment import child_environment, proxy_variables
from imagegen.rehearsal.network.journal import Entry, Injection, Injections, Journal, Mutate, When
from imagegen.rehearsal.network.proxy import Proxy

if TYPE_CHECKING:
    import ssl
    import types
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from imagegen.rehearsal.network.artifact_server import ArtifactServer
    from imagegen.rehearsal.network.cloud import CloudOptions
    from imagegen.rehearsal.network.machine import MachineIdentity, OnMachine
    from imagegen.rehearsal.network.messages import Host, Response


class Network:
    """A context manager. While it is open, a child process with `environ` can reach only its clouds and hosts."""

    def __init__(
        self,
        scratch: Path,
        clouds: Sequence[CloudOptions] = (),
        *,
        artifacts: ArtifactServer | None = None,
        hosts: Mapping[str, Host] | None = None,
        on_machine: OnMachine | None = None,
    ) -> None:
        self._on_machine = on_machine
        self._lock = threading.Lock()
        self._machines: list[MachineIdentity] = []
        self._guests: dict[str, int] = {}
        self._default_guest: int | None = None
        self._silent: set[str] = set()
        self._closing = contextlib.ExitStack()
        self._authority = Authority(scratch)
        self._journal = Journal()
        self._injections = Injections()
        self.clouds = tuple(options.make_cloud(self._machine_started) for options in clouds)
        self._hosts: dict[str, Host] = dict.fromkeys(artifacts.hosts, artifacts) if artifacts is not None else {}
        self._hosts.update(hosts or {})
        self._proxy: Proxy | None = None

    def __enter__(self) -> Network:
        with contextlib.ExitStack() as opening:
            for cloud in self.clouds:
                opening.enter_context(cloud)
            self._proxy = Proxy(self, self._authority, self._journal, self._injections)
            self._proxy.start()
            opening.callback(self._proxy.close)
            self._closing = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._closing.close()

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which a child process uses the network."""
        if self._proxy is None:
            raise RuntimeError("the network has no address before it is opened")
        names = [name for cloud in self.clouds for name in cloud.authority_variables]
        variables = proxy_variables(self._proxy.url, self._authority.certificate_file, names)
        for cloud in self.clouds:
            variables.update(cloud.credentials)
        return variables

    def child_environ(self, parent: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a child process, with variables of the parent that do not bypass the network."""
        return child_environment(parent, self.environ)

    @property
    def faults(self) -> list[str]:
        """Everything that must not happen and did. Any of them fails the rehearsal."""
        return self._journal.faults

    @property
    def journal(self) -> list[Entry]:
        """Every answered request, in order."""
        return self._journal.entries

    def notes(self, host_pattern: str = "*") -> list[str]:
        """The operations in the requests to matching hosts, in order."""
        return self._journal.notes(host_pattern)

    def inject(
        self,
        host_pattern: str,
        path_pattern: str = "*",
        response: Response | None = None,
        *,
        mutate: Mutate | None = None,
        when: When | None = None,
        times: int | None = 1,
    ) -> Injection:
        """Answer the next `times` matching requests with `response`, or change the host's own answer with `mutate`.

        If `times` is None, all matching requests. The returned injection counts how often it was triggered.
        """
        injection = Injection(host_pattern, path_pattern, response, mutate, when, times)
        self._injections.add(injection)
        return injection

    @property
    def untriggered_injections(self) -> int:
        """How many injected faults were not triggered."""
        return self._injections.untriggered

    @property
    def machines(self) -> list[MachineIdentity]:
        """Every machine that a cloud started, in order."""
        with self._lock:
            return list(self._machines)

    def attach_guest(self, port: int, address: str = "") -> None:
        """Connect the WinRM port of a machine, or of every machine without a guest, to the guest on a local port."""
        with self._lock:
            if address:
                self._guests[address] = port
            else:
                self._default_guest = port

    def silence(self, address: str) -> None:
        """Make the machine with this address unreachable, whatever its cloud does with it."""
        with self._lock:
            self._silent.add(address)

    def is_silent(self, address: str) -> bool:
        """Whether the machine with this address was made unreachable."""
        with self._lock:
            return address in self._silent

    def listener_context(self, machine: MachineIdentity) -> ssl.SSLContext:
        """The TLS context of a machine's WinRM listener, with the certificate of its cloud or a new one."""
        return self._authority.listener_context(machine.address, machine.certificate)

    def find_host(self, name: str) -> Host | None:
        """Find the stand-in of a host: one with this name, or a cloud with a matching pattern."""
        if name in self._hosts:
            return self._hosts[name]
        for cloud in self.clouds:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in cloud.host_patterns):
                return cloud
        return None

    def find_winrm_port(self, address: str) -> int | str:
        """Find the local port of a machine's guest. Returns a reason if the WinRM port is closed."""
        for cloud in self.clouds:
            reason = cloud.why_closed(address)
            if reason is None:
                continue
            if reason:
                return reason
            with self._lock:
                port = self._guests.get(address, self._default_guest)
            return port if port is not None else "the machine has no guest"
        return "no machine has this address"

    def _machine_started(self, machine: MachineIdentity) -> None:
        with self._lock:
            self._machines.append(machine)
        port = self._on_machine(machine) if self._on_machine is not None else None
        if port is not None:
            self.attach_guest(port, machine.address)
