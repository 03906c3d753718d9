"""The sandbox of a rehearsal: a private network, and a model machine for every machine that a cloud starts.

A machine accepts WinRM connections only if the cloud started it with the bootstrap script of the tree. It compares
everything that Packer sends with the bytes of the tree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
import threading
from typing import TYPE_CHECKING

import httpx

from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.base.errors import VerificationError
from imagegen.fetch.cache import FOLDER_VARIABLE
from imagegen.fetch.credentials import SIGN_IN
from imagegen.fetch.request import place_of
from imagegen.oci.registry import read_credentials
from imagegen.rehearsal.expected import ENTRY_PATH, GENERALISE_PATH, LOGS_PATH, expected_from_tree
from imagegen.rehearsal.guest import Effects, RehearsedGuest
from imagegen.rehearsal.machine.engine import Outcome, run_entry
from imagegen.rehearsal.machine.plan import PLAN, UNPACKED
from imagegen.rehearsal.machine.script_policy import REFUSED, find_refusal
from imagegen.rehearsal.machine.seal import find_sealing_losses, generalise, print_logs
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.rehearsal.network.artifact_server import ArtifactServer
from imagegen.rehearsal.network.network import Network
from imagegen.rehearsal.network.private_files import demands_of
from imagegen.rehearsal.network.registries import Registries
from imagegen.rehearsal.winrm.observations import Cost
from imagegen.rehearsal.winrm.server import WinRMServer
from imagegen.trust.sources import ROOTS_VARIABLE

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from imagegen.fetch.credentials import Ways
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.cloud import CloudOptions
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.network.messages import Request, Response
    from imagegen.rehearsal.winrm.command import Write

_DOWNLOAD_S = 30.0
# The same as in the guest's download script.
_RETRIED_STATUSES = frozenset({408, 429, *range(500, 600)})


@dataclasses.dataclass(frozen=True)
class SandboxSetup:
    """The setup of a sandbox: the provider, the Windows release of its base image, artifacts by URL, and the tree."""

    cloud: str
    release: str
    artifacts: Mapping[str, bytes]
    tree: Callable[[], Path]
    cloud_options: CloudOptions
    """The initial state of the cloud."""
    user_data: str = ""
    """The file of the tree with which the cloud must start its machines."""
    proxy: str | None = None
    """The proxy of the config, the only one that machines can reach."""
    images: Sequence[str] = ()
    """The container images that registries have, by their whole names."""
    mirrors: Sequence[str] = ()
    """The URLs of the mirrors of registries."""
    digests: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """The documents with the digests that are published beside the artifacts, by URL."""
    accounts: Sequence[str] = ()
    """The accounts that the config expects in its base image."""
    registry_credentials: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """For each registry that demands credentials, the names of the environment variables with them."""
    signing_roots: bytes = b""
    """The roots of the stand-ins' signatures, in PEM. The machine trusts them. Empty if nothing is signed."""
    reaches_windows_update: bool = False

    download_credentials: Ways = dataclasses.field(default_factory=dict)
    """For each host with private artifacts the way to sign in."""
    accounts_beside: Mapping[str, CloudOptions] = dataclasses.field(default_factory=dict)
    """The initial states of other clouds to which downloads sign in."""

    @property
    def secret_variables(self) -> dict[str, str]:
        """The stand-ins for the values of the variables that the config names. The user's own stay outside."""
        rows = (*self.registry_credentials.values(), *self.download_credentials.values())
        names = (name for row in rows for key, name in row.items() if key != SIGN_IN)
        return {name: f"stand-in-for-{name}" for name in names}


class Sandbox:
    """A context manager. While it is open, a child process with `child_environ` builds in its network only."""

    def __init__(self, setup: SandboxSetup, scratch: Path) -> None:
        self._setup = setup
        self._scratch = scratch
        self._lock = threading.Lock()
        self._faults: list[str] = []
        self._guests: list[tuple[RehearsedGuest, WinRMServer]] = []
        self._captured: Machine | None = None
        self._closing = contextlib.ExitStack()
        # Called with each machine that starts, before its first command.
        self.machine_hooks: list[Callable[[MachineIdentity, Machine, WinRMServer], None]] = []
        self._demands = demands_of(setup.download_credentials, setup.secret_variables)
        admit = dict.fromkeys((place.partition("/")[0] for place in self._demands), self._admit)
        artifacts = ArtifactServer(setup.artifacts, digests=setup.digests, admit=admit)
        self._credentials = read_credentials(setup.registry_credentials, setup.secret_variables)
        registries = Registries(setup.images, setup.mirrors, beside=artifacts, credentials=self._credentials)
        self.network = Network(
            scratch,
            [setup.cloud_options, *setup.accounts_beside.values()],
            artifacts=artifacts,
            hosts=dict.fromkeys(registries.hosts, registries),
            on_machine=self._start_guest,
        )

    def __enter__(self) -> Sandbox:
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
        """The environment of a child process in this sandbox."""
        # Otherwise the user's cache would have stand-ins under the URLs of real artifacts.
        downloads = {FOLDER_VARIABLE: str(self._scratch.absolute() / "downloads")}
        environ = {**self.network.child_environ(parent), **self._setup.secret_variables, **downloads}
        if self._setup.signing_roots:
            file = self._scratch / "signing-roots.pem"
            file.write_bytes(self._setup.signing_roots)
            environ[ROOTS_VARIABLE] = str(file)
        return environ

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        """The artifacts that can be downloaded, by URL."""
        return self._setup.artifacts

    @property
    def faults(self) -> list[str]:
        """One message for everything that must not happen and did."""
        with self._lock:
            guests = list(self._guests)
            own = list(self._faults)
        of_guests = [fault for guest, server in guests for fault in (*guest.faults, *server.faults)]
        return [*own, *self.network.faults, *of_guests]

    @property
    def missing(self) -> list[str]:
        """The steps of the tree that started machines did not receive."""
        with self._lock:
            return [step for guest, _ in self._guests for step in guest.missing()]

    @property
    def captured(self) -> Machine | None:
        """The machine whose disk is the image: the one that was sealed last."""
        with self._lock:
            return self._captured

    @property
    def cost(self) -> Cost:
        """The WinRM traffic of all machines."""
        with self._lock:
            costs = [dataclasses.astuple(server.cost) for _, server in self._guests]
        return Cost(*(sum(column) for column in zip(*costs, strict=True))) if costs else Cost(0, 0, 0, 0, 0, 0)

    def _start_guest(self, identity: MachineIdentity) -> int | None:
        try:
            tree = self._setup.tree()
            expected = expected_from_tree(tree, self._credentials, self._demands)
            self._check_bootstrap(identity, tree)
        except VerificationError as error:
            with self._lock:
                self._faults.append(" ".join([error.message, *error.details]))
            return None
        disk = self._scratch / f"disk-{identity.address}"
        disk.mkdir()
        machine = stock_windows(
            disk, release=self._setup.release, cloud=self._setup.cloud, accounts=self._setup.accounts
        )
        for root in read_pem(self._setup.signing_roots):
            machine.certificates.add_root(root, read_certificate(root).sha1)
        machine.fetches_roots = self._setup.reaches_windows_update
        guest = RehearsedGuest(expected, self._effects(machine))
        server = WinRMServer(
            guest,
            username=identity.username,
            password=identity.password,
            certificate=self.network.listener_context(identity),
        )
        for hook in self.machine_hooks:
            hook(identity, machine, server)
        self._closing.enter_context(server)
        with self._lock:
            self._guests.append((guest, server))
        return server.port

    def _effects(self, machine: Machine) -> Effects:
        """What Packer's commands do on the machine."""

        def run_phase(arguments: Sequence[str], write: Write) -> int:
            return _run_script(machine, ENTRY_PATH, write, lambda: run_entry(machine, arguments, self._fetch))

        def seal(write: Write) -> int:
            return _run_script(machine, GENERALISE_PATH, write, generalise_machine)

        def generalise_machine() -> Outcome:
            plan = machine.files.read(f"{UNPACKED}\\{PLAN}")  # sealing deletes it
            outcome = generalise(machine, cloud=self._setup.cloud)
            losses = find_sealing_losses(machine, plan) if outcome.exit_code == 0 else []
            with self._lock:
                self._faults += losses
                if outcome.exit_code == 0:
                    self._captured = machine
            return outcome

        return Effects(
            write_file=machine.files.write,
            read_file=machine.files.read,
            restart=machine.restart,
            run_phase=run_phase,
            generalise=seal,
            print_logs=lambda write: _run_script(machine, LOGS_PATH, write, lambda: print_logs(machine)),
        )

    def _check_bootstrap(self, identity: MachineIdentity, tree: Path) -> None:
        name = self._setup.user_data
        if name and identity.user_data.strip() != (tree / name).read_bytes().strip():
            raise VerificationError(f"the user data of the machine differs from {name} of the tree")

    def _admit(self, request: Request) -> Response | None:
        """The answer of a host with private artifacts to a request that it refuses."""
        names = (self._setup.cloud, *self._setup.accounts_beside)
        clouds = {name: cloud.admit for name, cloud in zip(names, self.network.clouds, strict=True)}
        place = place_of(f"https://{request.host}{request.target}", self._demands)
        return None if place is None else self._demands[place].admit(request, clouds)

    def _fetch(self, url: str, authorization: str, proxy: str | None) -> bytes:
        """Download a URL in the same way as the guest, through the network's proxy, which is also the config's proxy.

        Only the certificate authority of the rehearsal is trusted.
        """
        answer = self._get(url, _with_authorization({}, authorization), proxy)
        if answer.status_code in _RETRIED_STATUSES:
            raise ConnectionError(f"HTTP {answer.status_code}")
        if answer.status_code != httpx.codes.OK:
            raise OSError(f"HTTP {answer.status_code}")
        return answer.content

    def _get(self, url: str, headers: Mapping[str, str], proxy: str | None) -> httpx.Response:
        if proxy not in (None, self._setup.proxy):
            raise ConnectionError(f"there is no proxy {proxy} in this network")
        environ = self.network.environ
        trust = ssl.create_default_context(cafile=environ["SSL_CERT_FILE"])
        try:
            with httpx.Client(
                proxy=environ["HTTPS_PROXY"], verify=trust, trust_env=False, timeout=_DOWNLOAD_S
            ) as client:
                return client.get(url, headers=dict(headers), follow_redirects=True)
        except httpx.TransportError as error:
            raise ConnectionError(str(error)) from error


def _with_authorization(headers: Mapping[str, str], authorization: str) -> dict[str, str]:
    """httpx sends this header to the host of the URL only."""
    return {**headers, **({"Authorization": authorization} if authorization else {})}


def _run_script(machine: Machine, path: str, write: Write, act: Callable[[], Outcome]) -> int:
    """Run one of the tree's scripts, if the policy of PowerShell admits it."""
    why = find_refusal(machine, path.replace("/", "\\"))
    outcome = Outcome(REFUSED, f"{path} cannot be loaded: {why}\n") if why else act()
    write(outcome.output.encode())
    return outcome.exit_code
