"""Windows Setup at the first start of a machine from a generalised image: specialise, oobe, SetupComplete.cmd."""

from __future__ import annotations

import dataclasses
import secrets
import string
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Process, UnknownCommandError
from imagegen.rehearsal.machine.accounts import BUILT_IN_ADMINISTRATOR
from imagegen.rehearsal.machine.answers import OOBE, SPECIALISE, read_answer_file
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.seal import ANSWER_FILES, CACHED_ANSWERS, SEALED, SETUP_SCRIPTS
from imagegen.rehearsal.machine.stock import IMAGE_STATE
from imagegen.rehearsal.machine.time_zone import OF_THE_REGION, write_time_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.boot.model import Ended
    from imagegen.rehearsal.boot.shell import Shell
    from imagegen.rehearsal.machine.answers import AnswerCommand, AnswerFile
    from imagegen.rehearsal.machine.windows import Machine

SETUP_COMPLETE = rf"{SETUP_SCRIPTS}\SetupComplete.cmd"
_COMPLETE, _IN_SETUP = "IMAGE_STATE_COMPLETE", "IMAGE_STATE_UNDEPLOYABLE"
_TERMINAL_SERVER = r"HKLM:\SYSTEM\CurrentControlSet\Control\Terminal Server"
# Setup would go on for ever.
_MOST_TRIES = 5
_DONE, _RESTART, _RESTART_AND_REPEAT = range(3)
# The places where Setup looks for an answer file, in its order.
_PLACES = (ANSWER_FILES[1], CACHED_ANSWERS, ANSWER_FILES[2], r"C:\unattend.xml")
_LOCALES = frozenset({"InputLocale", "SystemLocale", "UILanguage", "UserLocale"})
_NAMES = frozenset({"TimeZone", "RegisteredOrganization", "RegisteredOwner", "BluetoothTaskbarIconEnabled"})
_PAGES = frozenset(
    f"OOBE/{name}"
    for name in (
        *("HideEULAPage", "HideWirelessSetupInOOBE", "NetworkLocation", "ProtectYourPC"),
        *("SkipMachineOOBE", "SkipUserOOBE"),
    )
)
_SHELL, _TERMINAL = "Microsoft-Windows-Shell-Setup", "Microsoft-Windows-TerminalServices-LocalSessionManager"
# The settings whose effect is known, by pass and component.
_KNOWN: Mapping[tuple[str, str], frozenset[str]] = {
    (SPECIALISE, _SHELL): frozenset({"ComputerName", "CopyProfile"}) | _NAMES,
    (SPECIALISE, _TERMINAL): frozenset({"fDenyTSConnections"}),
    (OOBE, "Microsoft-Windows-International-Core"): _LOCALES,
    (OOBE, _SHELL): _NAMES | _PAGES,
}


class SetupFailedError(Exception):
    """Windows Setup fails, or waits for somebody who is not there. `row` is the row of docs/reality.md about that."""

    def __init__(self, message: str, row: str = "") -> None:
        super().__init__(message)
        self.row = row


@dataclasses.dataclass(frozen=True)
class Setup:
    """What Setup ran: each command of the answer file with its exit code, and SetupComplete.cmd if it was there."""

    commands: tuple[tuple[str, int], ...]
    setup_complete: Ended | None


def is_generalised(machine: Machine) -> bool:
    """Whether Windows Setup runs at the next start."""
    return machine.registry.text(IMAGE_STATE, "ImageState") == SEALED


def run_setup(machine: Machine, shell: Shell) -> Setup:
    """Start a generalised machine for the first time, up to the end of Setup."""
    if not is_generalised(machine):
        state = machine.registry.text(IMAGE_STATE, "ImageState")
        raise SetupFailedError(f"the image is not generalised: its state is {state}")
    answers = _answers_in_force(machine)
    machine.restart()
    _write_state(machine, _IN_SETUP)
    machine.accounts.generalised()
    _expire_password(machine)
    commands = _specialise(machine, shell, answers)
    machine.restart()
    _check_oobe(machine, answers)
    _set_time_zone(machine, answers)
    ended = shell.run(Process(machine, (SETUP_COMPLETE,))) if machine.files.is_file(SETUP_COMPLETE) else None
    _write_state(machine, _COMPLETE)
    return Setup(commands, ended)


def _answers_in_force(machine: Machine) -> AnswerFile:
    found = next((path for path in _PLACES if machine.files.is_file(path)), None)
    if found is None:
        raise SetupFailedError("Windows Setup asks every question at the console: there is no answer file")
    try:
        answers = read_answer_file(machine.files.read(found))
    except RefusedByWindows as refusal:
        raise SetupFailedError(f"{found}: {refusal}") from refusal
    for part in (SPECIALISE, OOBE):
        for component, settings in answers.of_pass(part).items():
            unknown = set(settings) - _KNOWN.get((part, component), frozenset())
            if unknown:
                raise UnknownCommandError(
                    f"the rehearsal does not know {', '.join(sorted(unknown))} of {component} in pass {part} of {found}"
                )
    return answers


def _write_state(machine: Machine, state: str) -> None:
    machine.registry.write(IMAGE_STATE, "ImageState", Value("String", state))


def _expire_password(machine: Machine) -> None:
    """Windows may take the built-in administrator's password for one that has expired: here it always does."""
    for user in machine.accounts.users:
        if user.number == BUILT_IN_ADMINISTRATOR and user.enabled:
            user.must_change_password = user.password_expires and machine.accounts.passwords_expire


def _specialise(machine: Machine, shell: Shell, answers: AnswerFile) -> tuple[tuple[str, int], ...]:
    settings = answers.of_pass(SPECIALISE)
    name = settings.get(_SHELL, {}).get("ComputerName", "*")
    machine.set_host_name(_random_name() if name in ("", "*") else name)
    if denied := settings.get(_TERMINAL, {}).get("fDenyTSConnections"):
        machine.registry.make_key(_TERMINAL_SERVER)
        machine.registry.write(_TERMINAL_SERVER, "fDenyTSConnections", Value("DWord", int(denied.lower() == "true")))
    return tuple(run for command in answers.commands for run in _run_command(machine, shell, command))


def _set_time_zone(machine: Machine, answers: AnswerFile) -> None:
    """The zone of the answer file, or one of the region if it names none: the image's own is lost."""
    named = [answers.of_pass(part).get(_SHELL, {}).get("TimeZone") for part in (OOBE, SPECIALISE)]
    write_time_zone(machine.registry, next((zone for zone in named if zone), OF_THE_REGION))


def _random_name() -> str:
    letters = string.ascii_uppercase + string.digits
    return "WIN-" + "".join(secrets.choice(letters) for _ in range(11))


def _run_command(machine: Machine, shell: Shell, command: AnswerCommand) -> list[tuple[str, int]]:
    """Run a command, and again as long as it asks for that. Each run with its exit code."""
    runs: list[tuple[str, int]] = []
    while len(runs) < _MOST_TRIES:
        try:
            code = shell.run_line(machine, command.path).exit_code
        except RefusedByWindows as refusal:
            raise SetupFailedError(f"Windows Setup cannot run '{command.path}': {refusal}") from refusal
        runs.append((command.path, code))
        if command.will_reboot == "Always":
            machine.restart()
        if command.will_reboot != "OnRequest" or code == _DONE:
            return runs
        if code not in (_RESTART, _RESTART_AND_REPEAT):
            raise SetupFailedError(f"Windows could not complete the installation: '{command.path}' ended with {code}")
        machine.restart()
        if code == _RESTART:
            return runs
    raise SetupFailedError(f"Windows Setup restarts for ever: '{command.path}' fails at every try")


def _check_oobe(machine: Machine, answers: AnswerFile) -> None:
    """Fail where the first screens of Windows wait for somebody."""
    pages = answers.of_pass(OOBE).get(_SHELL, {})
    skips = [pages.get(f"OOBE/{name}", "false").lower() == "true" for name in ("SkipMachineOOBE", "HideEULAPage")]
    if not any(skips):
        raise SetupFailedError("Windows Setup waits at its licence page: the answer file neither skips nor hides it")
    waiting = [user.name for user in machine.accounts.users if user.enabled and user.must_change_password]
    if waiting:
        message = f"Windows Setup waits for a new password of {', '.join(waiting)}: the old one expired"
        raise SetupFailedError(message, "B12")
