"""A model machine that a cloud starts from the image, from Windows Setup to its second start."""

from __future__ import annotations

import contextlib
import dataclasses
import ntpath
from typing import TYPE_CHECKING, Final

from imagegen.boot.cloudbase_init import SERVICE as CLOUDBASE_INIT
from imagegen.rehearsal.boot.model import Ended, Process, UnknownCommandError
from imagegen.rehearsal.boot.programs import is_file
from imagegen.rehearsal.boot.shell import Shell
from imagegen.rehearsal.boot.windows_setup import SetupFailedError, run_setup
from imagegen.rehearsal.cloudbase_init.system import Surroundings
from imagegen.rehearsal.machine.programs import words
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import AUTOMATIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.rehearsal.boot.model import Instance, Platform, Program
    from imagegen.rehearsal.cloudbase_init.run import Runner
    from imagegen.rehearsal.machine.agents import Agents
    from imagegen.rehearsal.machine.windows import Machine

_PROGRAM: Final = "cloudbase-init.exe"
_LOCAL_SYSTEM: Final = "LocalSystem"
_SYSTEM: Final = "SYSTEM"
# A node restarts once for its name. One that restarts so often never ends.
_MOST_RESTARTS: Final = 5


@dataclasses.dataclass
class Runs:
    """What ran on the machine."""

    setup_failure: SetupFailedError | None = None
    ran_complete_script: bool = False
    version: str = ""
    """Of cloudbase-init. Empty if its service did not run."""
    started_early: bool = False
    is_done: bool = False
    """Whether cloudbase-init ended since the machine's last start, and asks for no further restart."""
    restarts_forever: bool = False
    commands: list[tuple[str, Ended]] = dataclasses.field(default_factory=list)
    """The programs that the user data started, with their ends."""
    scripts_of_agents: list[str] = dataclasses.field(default_factory=list)
    """The scripts of the user data that the cloud's own agents ran."""
    unknown: list[str] = dataclasses.field(default_factory=list)
    """What the rehearsal does not know, and what Windows refused where nobody handles that."""
    was_interrupted: bool = False
    """Whether such a thing ended what the machine was doing, outside cloudbase-init."""
    crashes: list[str] = dataclasses.field(default_factory=list)
    """The errors that ended cloudbase-init before its end."""
    console: dict[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outside:
    """What is around the machine."""

    platform: Platform
    runner: Runner
    proxy: str
    programs: Mapping[str, Program] = dataclasses.field(default_factory=dict)
    """Programs of the node that are not Windows' own, by their names."""


class Node:
    """The machine with its surroundings."""

    def __init__(
        self,
        machine: Machine,
        instance: Instance,
        outside: Outside,
        agents: Agents,
        unchecked: list[str] | None = None,
    ) -> None:
        """`unchecked` gets what the machine takes as run."""
        self.machine = machine
        self.runs = Runs()
        self._instance = instance
        self._platform = outside.platform
        self._agents = agents
        self._runner = outside.runner
        self._proxy = outside.proxy
        own: dict[str, Program] = {_PROGRAM: self._run_program}
        recorded = {name: self._record(program) for name, program in outside.programs.items()}
        self._shell = Shell({**agents.programs, **recorded, **own}, [] if unchecked is None else unchecked)
        self._service_waits = False
        self._must_restart = False
        machine.services.on_start[CLOUDBASE_INIT] = self._service_started

    @property
    def account(self) -> str:
        """The account of cloudbase-init's service."""
        services = self.machine.services
        account = self.machine.registry.text(services.key(CLOUDBASE_INIT), "ObjectName") or _LOCAL_SYSTEM
        return _SYSTEM if account == _LOCAL_SYSTEM else account.rpartition("\\")[2]

    def start_first(self) -> bool:
        """Windows Setup, the services, and the restarts that cloudbase-init asks for. Whether all of it ended."""
        # Windows starts an automatic service at every restart of Setup, long before SetupComplete.cmd.
        self.runs.started_early = self.machine.services.start_type(CLOUDBASE_INIT) == AUTOMATIC
        with self._unknown_is_recorded():
            try:
                setup = run_setup(self.machine, self._shell)
            except SetupFailedError as failure:
                self.runs.setup_failure = failure
                return False
            self.runs.ran_complete_script = setup.setup_complete is not None
            return self._run_until_quiet()
        return False

    def start_again(self) -> bool:
        """Restart the machine, with everything that runs at every start. Whether all of it ended."""
        self.runs.is_done = False
        with self._unknown_is_recorded():
            self.machine.restart()
            return self._run_until_quiet()
        return False

    @contextlib.contextmanager
    def _unknown_is_recorded(self) -> Iterator[None]:
        """A command whose effect nobody knows ends what the machine was doing, and fails the boot by name. So does what
        Windows refuses, where the rehearsal does not know what the program does about that."""
        try:
            yield
        except UnknownCommandError as error:
            self.runs.was_interrupted = True
            self.runs.unknown.append(str(error))
        except RefusedByWindows as refusal:
            self.runs.was_interrupted = True
            self.runs.unknown.append(f"the rehearsal does not know what follows where Windows refuses: {refusal}")

    def _run_until_quiet(self) -> bool:
        for _ in range(_MOST_RESTARTS):
            if self._agents.run_at_boot is not None:
                found = self._agents.run_at_boot(self.machine, self._instance.user_data, self._shell.run)
                self.runs.scripts_of_agents += found
            if not self._service_waits:
                return True
            self._service_waits = False
            if not self._run_service():
                return True
            self.machine.restart()
        self.runs.restarts_forever = True
        return False

    def _service_started(self) -> None:
        """The service runs beside everything else, and here after it."""
        self._service_waits = True

    def _run_service(self) -> bool:
        """Run the service's command line. Whether the machine must restart."""
        self._must_restart = False
        # The service's own program is given the name of the service, and then the command line to start.
        command_line = words(self.machine.services.command(CLOUDBASE_INIT))[2:]
        if not command_line or not is_file(self.machine, command_line[0]):
            self.runs.crashes.append(f"its service cannot find its program {' '.join(command_line[:1])}")
            return False
        if self.account != _SYSTEM and self.machine.accounts.user(self.account) is None:
            self.runs.crashes.append(f"the account of its service, {self.account}, does not exist")
            return False
        around, code = self._run(command_line, self.account)
        self.runs.version = around.version
        self.runs.is_done = code == 0 and not self._must_restart
        return self._must_restart

    def _run_program(self, process: Process) -> Ended:
        """The program as Windows Setup starts it by the answer file, or the one that runs starts it as its account."""
        _, code = self._run(process.arguments, process.user)
        return Ended(code)

    def _run(self, command_line: Sequence[str], user: str) -> tuple[Surroundings, int]:
        def run_program(arguments: Sequence[str], shell: bool, user: str) -> Ended:
            line = ("cmd.exe", "/c", *arguments) if shell else tuple(arguments)
            return self._shell.run(Process(self.machine, line, user=user))

        around = Surroundings(self.machine, self._platform, run_program, user=user, console=self.runs.console)
        code = self._runner.run(around, command_line, self._proxy)
        self.runs.unknown += around.unknown
        self.runs.crashes += [around.crash] if around.crash else []
        self._must_restart = self._must_restart or around.reboots
        return around, code

    def _record(self, program: Program) -> Program:
        def run(process: Process) -> Ended:
            ended = program(process)
            name = ntpath.basename(process.arguments[0])
            self.runs.commands.append((" ".join([name, *process.arguments[1:]]), ended))
            return ended

        return run
