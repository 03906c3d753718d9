"""The stage of a rehearsal: a private network, and behind it a model machine for every machine that a cloud starts.

A machine opens its door only when the tree's own bootstrap arrived; what it is sent is known by the tree's own bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
import threading
from typing import TYPE_CHECKING

import httpx

from imagegen.errors import VerificationError
from imagegen.rehearsal.guest import Effects, RehearsedGuest, expected_from_tree
from imagegen.rehearsal.machine.bundle import PLAN, UNPACKED
from imagegen.rehearsal.machine.engine import run_entry
from imagegen.rehearsal.machine.generalise import generalise
from imagegen.rehearsal.machine.outlived import lost_by_sealing
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.rehearsal.network.artifacts import Artifacts
from imagegen.rehearsal.network.network import Network
from imagegen.rehearsal.winrm.observations import Cost
from imagegen.rehearsal.winrm.server import WinRMServer

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from imagegen.rehearsal.machine.engine import Outcome
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.cloud import CloudOptions
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.winrm.command import Write

_DOWNLOAD_S = 30.0
# As the guest's own download does.
_WORTH_ANOTHER_TRY = frozenset({408, 429, *range(500, 600)})


@dataclasses.dataclass(frozen=True)
class Scene:
    """What a rehearsal needs to know: the cloud, the Windows of its base image, what can be downloaded, the tree.

    `options` is what lies in the cloud from the start, `user_data` the file of the tree that its machines start with.
    """

    cloud: str
    release: str
    supplies: Mapping[str, bytes]
    tree: Callable[[], Path]
    options: CloudOptions
    user_data: str = ""
    proxy: str | None = None
    """The one proxy that machines can reach, where the config names one."""


class Stage:
    """A context: while it is open, a child with `child_environ` builds in this network and nowhere else."""

    def __init__(self, scene: Scene, scratch: Path) -> None:
        self._scene = scene
        self._scratch = scratch
        self._lock = threading.Lock()
        self._faults: list[str] = []
        self._guests: list[tuple[RehearsedGuest, WinRMServer]] = []
        self._closing = contextlib.ExitStack()
        # Called with each machine that starts, before it is told anything.
        self.disturbances: list[Callable[[MachineIdentity, Machine, WinRMServer], None]] = []
        self.network = Network(
            scratch,
            [scene.options],
            artifacts=Artifacts(scene.supplies),
            on_machine=self._start_guest,
        )

    def __enter__(self) -> Stage:
        self._closing.enter_context(self.network)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._closing.close()

    def child_environ(self, parent: Mapping[str, str]) -> dict[str, str]:
        """The environment in which a build runs against this stage."""
        return self.network.child_environ(parent)

    @property
    def supplies(self) -> Mapping[str, bytes]:
        """What can be downloaded, by address."""
        return self._scene.supplies

    @property
    def faults(self) -> list[str]:
        """Everything that must not happen and did, in words that name it."""
        with self._lock:
            guests = list(self._guests)
            own = list(self._faults)
        seen = [fault for guest, server in guests for fault in (*guest.faults, *server.faults)]
        return [*own, *self.network.faults, *seen]

    @property
    def missing(self) -> list[str]:
        """What a started machine should have been told and was not."""
        with self._lock:
            return [step for guest, _ in self._guests for step in guest.missing()]

    @property
    def cost(self) -> Cost:
        """What the conversations with all machines cost."""
        with self._lock:
            costs = [dataclasses.astuple(server.cost) for _, server in self._guests]
        return Cost(*(sum(column) for column in zip(*costs, strict=True))) if costs else Cost(0, 0, 0, 0, 0, 0)

    def _start_guest(self, identity: MachineIdentity) -> int | None:
        try:
            tree = self._scene.tree()
            expected = expected_from_tree(tree)
            self._check_bootstrap(identity, tree)
        except VerificationError as error:
            with self._lock:
                self._faults.append(" ".join([error.message, *error.details]))
            return None
        disk = self._scratch / f"disk-{identity.address}"
        disk.mkdir()
        machine = stock_windows(disk, release=self._scene.release, cloud=self._scene.cloud)

        def run_phase(arguments: Sequence[str], write: Write) -> int:
            return _say(run_entry(machine, arguments, self._fetch), write)

        def seal(write: Write) -> int:
            plan = machine.files.read(f"{UNPACKED}\\{PLAN}")  # gone when the machine is sealed
            outcome = generalise(machine, cloud=self._scene.cloud)
            lost = lost_by_sealing(machine, plan) if outcome.exit_code == 0 else []
            with self._lock:
                self._faults += lost
            return _say(outcome, write)

        effects = Effects(
            write_file=machine.files.write,
            read_file=machine.files.read,
            restart=machine.restart,
            run_phase=run_phase,
            generalise=seal,
        )
        guest = RehearsedGuest(expected, effects)
        server = WinRMServer(
            guest,
            username=identity.username,
            password=identity.password,
            certificate=self.network.listener_context(identity),
        )
        for disturb in self.disturbances:
            disturb(identity, machine, server)
        self._closing.enter_context(server)
        with self._lock:
            self._guests.append((guest, server))
        return server.port

    def _check_bootstrap(self, identity: MachineIdentity, tree: Path) -> None:
        name = self._scene.user_data
        if name and identity.user_data.strip() != (tree / name).read_bytes().strip():
            raise VerificationError(f"the machine was started without the tree's own user data ({name})")

    def _fetch(self, url: str, proxy: str | None) -> bytes:
        """A download as the guest makes it: the network plays the config's proxy too, and no other.

        The rehearsal's authority alone is trusted.
        """
        if proxy not in (None, self._scene.proxy):
            raise ConnectionError(f"there is no proxy {proxy} in this network")
        environ = self.network.environ
        trust = ssl.create_default_context(cafile=environ["SSL_CERT_FILE"])
        try:
            with httpx.Client(
                proxy=environ["HTTPS_PROXY"], verify=trust, trust_env=False, timeout=_DOWNLOAD_S
            ) as client:
                answer = client.get(url, follow_redirects=True)
        except httpx.TransportError as error:
            raise ConnectionError(str(error)) from error
        if answer.status_code in _WORTH_ANOTHER_TRY:
            raise ConnectionError(f"HTTP {answer.status_code}")
        if answer.status_code != httpx.codes.OK:
            raise OSError(f"HTTP {answer.status_code}")
        return answer.content


def _say(outcome: Outcome, write: Write) -> int:
    write(outcome.output.encode())
    return outcome.exit_code
