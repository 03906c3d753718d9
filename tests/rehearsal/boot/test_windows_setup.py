"""The first start of a sealed machine: Windows Setup, SetupComplete.cmd, and the agents of the clouds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.boot.windows_setup import SETUP_COMPLETE, SetupFailedError, is_generalised, run_setup
from imagegen.rehearsal.machine.accounts import BUILT_IN_ADMINISTRATOR
from imagegen.rehearsal.machine.answers import AnswerCommand, AnswerFile, make_answer_file, read_answer_file
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, MANUAL
from imagegen.rehearsal.machine.stock import IMAGE_STATE
from imagegen.rehearsal.machine.time_zone import KEY, write_time_zone
from tests.rehearsal.boot.conftest import (
    CLOUDBASE,
    CLOUDBASE_PROGRAM,
    FILES,
    SETUP_SCRIPTS,
    UNATTEND,
    make_setup_complete,
    put_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.boot.shell import Shell
    from imagegen.rehearsal.machine import Machine
    from imagegen.rehearsal.machine.accounts import User
    from tests.rehearsal.boot.conftest import Started

PANTHER = r"C:\Windows\Panther\unattend.xml"
FIRST_BOOT_LOG = rf"{SETUP_SCRIPTS}\first-boot.log"
FIRST_BOOT = rf"{SETUP_SCRIPTS}\first-boot.ps1"
SKIPS = {"OOBE/SkipMachineOOBE": "true"}


def built_in(machine: Machine) -> User:
    [user] = [user for user in machine.accounts.users if user.number == BUILT_IN_ADMINISTRATOR]
    return user


def use_answers(machine: Machine, *commands: AnswerCommand, **settings: dict[str, dict[str, str]]) -> None:
    settings.setdefault("oobeSystem", {"Microsoft-Windows-Shell-Setup": SKIPS})
    machine.files.write(PANTHER, make_answer_file(AnswerFile(settings=settings, commands=list(commands))))


# ---- Setup


def test_azures_machine_runs_cloudbase_init_while_windows_is_specialised(
    azure: Machine, shell: Shell, started: Started
) -> None:
    """Its answer file takes the exit code 1 for a wish to restart, and cloudbase-init's 0 is made to that."""
    before, sid = azure.boot_count, azure.accounts.sid(built_in(azure))
    assert is_generalised(azure)
    setup = run_setup(azure, shell)
    assert [code for _, code in setup.commands] == [1]
    conf = rf"{CLOUDBASE}\conf\cloudbase-init-unattend.conf"
    assert started.lines == [(CLOUDBASE_PROGRAM, "--config-file", conf)]
    assert azure.boot_count - before == 3
    assert azure.registry.text(IMAGE_STATE, "ImageState") == "IMAGE_STATE_COMPLETE"
    assert re.fullmatch(r"WIN-[A-Z0-9]{11}", azure.host_name)
    assert azure.host_name != "WIN-0A1B2C3D4E5"
    assert azure.accounts.sid(built_in(azure)) != sid


def test_a_failed_pass_is_repeated_and_does_not_go_on_for_ever(azure: Machine, shell: Shell, started: Started) -> None:
    started.codes = [1, 0]
    assert [code for _, code in run_setup(azure, shell).commands] == [2, 1]
    azure.registry.write(IMAGE_STATE, "ImageState", Value("String", "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"))
    started.codes = [1] * 100
    with pytest.raises(SetupFailedError, match=r"restarts for ever: .*cloudbase-init-unattend\.conf"):
        run_setup(azure, shell)


def test_awss_machine_gives_its_administrator_another_password(aws: Machine, shell: Shell, started: Started) -> None:
    password = built_in(aws).password
    setup = run_setup(aws, shell)
    assert [(line.split()[0], code) for line, code in setup.commands] == [("net", 0), ('"C:\\Program', 0)]
    assert built_in(aws).password != password
    assert not built_in(aws).must_change_password
    assert aws.registry.number(r"HKLM:\SYSTEM\CurrentControlSet\Control\Terminal Server", "fDenyTSConnections") == 0
    assert started.lines == []


def test_only_the_built_in_administrator_is_asked_for_a_password(azure: Machine, shell: Shell) -> None:
    azure.accounts.add_user("someone", "x")
    azure.accounts.passwords_expire = True
    built_in(azure).password_expires = False
    assert run_setup(azure, shell).setup_complete is not None


def test_setup_complete_starts_cloudbase_init_when_setup_is_at_its_end(azure: Machine, shell: Shell) -> None:
    seen: list[str | None] = []
    azure.services.on_start["cloudbase-init"] = lambda: seen.append(azure.registry.text(IMAGE_STATE, "ImageState"))
    setup = run_setup(azure, shell)
    assert setup.setup_complete is not None
    assert setup.setup_complete.exit_code == 0
    assert seen == ["IMAGE_STATE_UNDEPLOYABLE"]
    assert azure.services.start_type("cloudbase-init") == AUTOMATIC
    azure.restart()
    assert len(seen) == 2, "it starts at every boot from then on"


def test_without_setup_complete_cloudbase_init_never_starts(azure: Machine, shell: Shell) -> None:
    azure.files.remove(SETUP_COMPLETE)
    assert run_setup(azure, shell).setup_complete is None
    azure.restart()
    assert azure.services.start_type("cloudbase-init") == MANUAL
    assert not azure.services.is_running("cloudbase-init")


@pytest.mark.parametrize(
    ("settings", "zone"),
    [
        ({}, "Pacific Standard Time"),
        ({"specialize": "UTC"}, "UTC"),
        ({"specialize": "UTC", "oobeSystem": "Tokyo Standard Time"}, "Tokyo Standard Time"),
    ],
)
def test_setup_replaces_the_time_zone_of_the_image(
    azure: Machine, shell: Shell, settings: dict[str, str], zone: str
) -> None:
    """Microsoft's page on TimeZone: if the answer file has none, the region decides, which is en-US."""
    write_time_zone(azure.registry, "W. Europe Standard Time")
    passes = {name: {SHELL_SETUP: {"TimeZone": zone}} for name, zone in settings.items()}
    passes.setdefault("oobeSystem", {}).setdefault(SHELL_SETUP, {}).update(SKIPS)
    use_answers(azure, **passes)
    run_setup(azure, shell)
    assert azure.registry.text(KEY, "TimeZoneKeyName") == zone


@pytest.mark.parametrize("zone", ["W. Europe Standard Time", "Central Standard Time (Mexico)_dstoff", "UTC-11"])
@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_setup_complete_sets_the_time_zone_before_cloudbase_init_starts(
    request: pytest.FixtureRequest, shell: Shell, cloud: str, zone: str
) -> None:
    machine: Machine = request.getfixturevalue(cloud)
    seen: list[str] = []
    machine.files.write(SETUP_COMPLETE, make_setup_complete(zone))
    machine.services.on_start["cloudbase-init"] = lambda: seen.append(
        str(machine.registry.text(KEY, "TimeZoneKeyName"))
    )
    run_setup(machine, shell)
    assert seen == [zone.removesuffix("_dstoff")]
    assert machine.files.read(FIRST_BOOT_LOG) == b""


def test_a_time_zone_that_cannot_be_set_is_a_line_of_the_log(azure: Machine, shell: Shell) -> None:
    azure.files.write(SETUP_COMPLETE, make_setup_complete("Nowhere Standard Time"))
    run_setup(azure, shell)
    assert azure.files.read(FIRST_BOOT_LOG) == b"failed: tzutil.exe could not set the time zone\r\n"
    assert azure.services.is_running("cloudbase-init")


def cmd(line: str, will_reboot: str = "OnRequest") -> AnswerCommand:
    return AnswerCommand.model_validate({"path": f"cmd.exe /c {line}", "will_reboot": will_reboot})


def test_commands_run_in_their_order_and_restart_windows_as_they_ask(aws: Machine, shell: Shell) -> None:
    note = r"C:\Windows\Temp\note.txt"
    lines = [cmd(f'"echo a>> {note}&& exit 0"'), cmd(f'"echo b>> {note}&& exit 1"'), cmd(f"echo c>> {note}", "Always"),
             cmd(f'"echo d>> {note}&& exit 7"', "Never")]  # fmt: skip
    use_answers(aws, *lines)
    aws.accounts.passwords_expire = False
    before = aws.boot_count
    assert [code for _, code in run_setup(aws, shell).commands] == [0, 1, 0, 7]
    assert aws.files.read(note) == b"a\r\nb\r\nc\r\nd\r\n"
    assert aws.boot_count - before == 4


SHELL_SETUP = "Microsoft-Windows-Shell-Setup"
FAILURES: dict[str, tuple[Callable[[Machine], object], type[Exception], str]] = {
    "not generalised": (
        lambda m: m.registry.write(IMAGE_STATE, "ImageState", Value("String", "IMAGE_STATE_COMPLETE")),
        SetupFailedError, "the image is not generalised: its state is IMAGE_STATE_COMPLETE",
    ),
    "no answers": (lambda m: m.files.remove(PANTHER), SetupFailedError, "there is no answer file"),
    "not XML": (lambda m: m.files.write(PANTHER, b"x"), SetupFailedError, "cannot read its answer file"),
    "other XML": (lambda m: m.files.write(PANTHER, b"<x/>"), SetupFailedError, "it is no unattend element"),
    "another file comes first": (
        lambda m: put_file(m, r"C:\Windows\Panther\Unattend\unattend.xml", b"x"),
        SetupFailedError, r"C:\Windows\Panther\Unattend\unattend.xml: Windows Setup cannot read",
    ),
    "unknown setting": (
        lambda m: use_answers(m, specialize={SHELL_SETUP: {"ProductKey": "x"}}),
        UnknownCommandError, "does not know ProductKey of Microsoft-Windows-Shell-Setup in pass specialize",
    ),
    "unknown component": (
        lambda m: use_answers(m, oobeSystem={"Other": {"A/B": "x"}}), UnknownCommandError, "A/B of Other in pass oobe",
    ),
    "unknown command": (
        lambda m: use_answers(m, AnswerCommand(path="w32tm /resync")), UnknownCommandError, "the command 'w32tm'",
    ),
    "no such program": (
        lambda m: use_answers(m, AnswerCommand(path=r'"C:\Agent\agent.exe" x')), SetupFailedError,
        r"""cannot run '"C:\Agent\agent.exe" x': cannot find the program""",
    ),
    "failed command": (
        lambda m: use_answers(m, cmd("exit 3")), SetupFailedError, "'cmd.exe /c exit 3' ended with 3",
    ),
    "a page": (
        lambda m: use_answers(m, oobeSystem={SHELL_SETUP: {"OOBE/ProtectYourPC": "1"}}),
        SetupFailedError, "waits at its licence page",
    ),
    "an expired password": (
        lambda m: setattr(m.accounts, "passwords_expire", True), SetupFailedError, "a new password of packer",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "error", "message"), FAILURES.values(), ids=FAILURES)
def test_setup_fails_by_name(
    azure: Machine, shell: Shell, spoil: Callable[[Machine], object], error: type[Exception], message: str
) -> None:
    spoil(azure)
    with pytest.raises(error, match=re.escape(message)):
        run_setup(azure, shell)


def test_an_answer_file_says_what_it_was_made_of() -> None:
    answers = AnswerFile(
        settings={
            "oobeSystem": {SHELL_SETUP: {"OOBE/HideEULAPage": "true", "OOBE/ProtectYourPC": "1", "TimeZone": "U"}}
        },
        commands=[AnswerCommand(path='cmd.exe /c ""a" && exit 1"', will_reboot="OnRequest"), AnswerCommand(path="b")],
    )
    data = make_answer_file(answers)
    assert read_answer_file(data) == answers
    swapped = data.replace(b"<Order>1<", b"<Order>3<")
    assert [one.path for one in read_answer_file(swapped).commands] == ["b", 'cmd.exe /c ""a" && exit 1"']
    with pytest.raises(RefusedByWindows, match="cannot read a command"):
        read_answer_file(data.replace(b"<Order>1<", b"<Order><"))


def test_the_answer_file_of_the_package_is_the_one_that_sealing_names() -> None:
    script = (FILES.parents[3] / "packer" / "azure" / "generalise.ps1").read_text()
    assert f"$answers = '{UNATTEND}'" in script
