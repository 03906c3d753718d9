"""The first start of a sealed machine: Windows Setup, SetupComplete.cmd, and the agents of the clouds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.first_boot import CLOSED_ACCOUNT, PARTS
from imagegen.rehearsal.boot.model import Process, UnknownCommandError
from imagegen.rehearsal.boot.windows_setup import SETUP_COMPLETE, SetupFailedError, is_generalised, run_setup
from imagegen.rehearsal.machine.accounts import BUILT_IN_ADMINISTRATOR
from imagegen.rehearsal.machine.answers import AnswerCommand, AnswerFile, make_answer_file, read_answer_file
from imagegen.rehearsal.machine.certificates import Certificate
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.restricted_address import FILE as RESTRICTED_ADDRESS
from imagegen.rehearsal.machine.services import AUTOMATIC, MANUAL
from imagegen.rehearsal.machine.stock import IMAGE_STATE
from imagegen.rehearsal.machine.time_zone import read_time_zone, write_time_zone
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
    assert azure.firewall.rule("winrm-https") is not None


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
    assert read_time_zone(azure.registry) == zone


@pytest.mark.parametrize("zone", ["W. Europe Standard Time", "Central Standard Time (Mexico)_dstoff", "UTC-11"])
@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_setup_complete_sets_the_time_zone_before_cloudbase_init_starts(
    request: pytest.FixtureRequest, shell: Shell, cloud: str, zone: str
) -> None:
    machine: Machine = request.getfixturevalue(cloud)
    seen: list[str] = []
    machine.files.write(SETUP_COMPLETE, make_setup_complete(zone))
    machine.services.on_start["cloudbase-init"] = lambda: seen.append(read_time_zone(machine.registry))
    run_setup(machine, shell)
    assert seen == [zone]
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


# ---- what the builder leaves


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_nothing_of_the_builder_is_left(aws: Machine, azure: Machine, shell: Shell, cloud: str) -> None:
    machine = {"aws": aws, "azure": azure}[cloud]
    password = built_in(machine).password
    machine.firewall.add(Rule("kubelet", "kubelet", "in", "allow", "TCP", "10250"))
    machine.firewall.add(Rule("out", "WinRM of others", "out", "allow", "TCP", "5986"))
    machine.certificates.add(Certificate("A" * 40))
    run_setup(machine, shell)
    assert sorted(rule.name for rule in machine.firewall.rules) == ["kubelet", "out"]
    assert machine.certificates.thumbprints() == {"A" * 40}
    assert machine.files.names(SETUP_SCRIPTS) == ["SetupComplete.cmd", "first-boot.log", "first-boot.ps1"]
    assert machine.files.read(rf"{SETUP_SCRIPTS}\first-boot.log") == b""
    assert built_in(machine).password != password
    closed = (built_in(machine).name, built_in(machine).enabled)
    assert closed == {"aws": ("Administrator", True), "azure": (CLOSED_ACCOUNT, False)}[cloud]
    if cloud == "azure":
        machine.accounts.add_user("packer", "x")  # the old name is free


def test_what_could_not_be_removed_is_in_the_log_and_cloudbase_init_starts(azure: Machine, shell: Shell) -> None:
    azure.accounts.add_user(CLOSED_ACCOUNT, "x")
    run_setup(azure, shell)
    log = azure.files.read(rf"{SETUP_SCRIPTS}\first-boot.log").decode()
    assert log.startswith("failed: account packer could not be renamed: there is an account")
    assert azure.files.is_file(rf"{SETUP_SCRIPTS}\accounts.txt"), "for another try"
    assert not built_in(azure).enabled
    assert azure.services.is_running("cloudbase-init")
    azure.files.write(rf"{SETUP_SCRIPTS}\certificates.txt", b"x\r\n")
    azure.accounts.rename_user(CLOSED_ACCOUNT, "other")
    azure.services.stop("mpssvc")
    ended = shell.run(Process(azure, ("powershell.exe", "-File", FIRST_BOOT)))
    assert (ended.exit_code, "mpssvc" in ended.output) == (1, True)
    assert built_in(azure).name == CLOSED_ACCOUNT, "the other parts run"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("first-boot.ps1", r"first-boot\.ps1, line 3"),
        ("SetupComplete.cmd", r"'del'.*SetupComplete\.cmd, line 6"),
    ],
)
def test_a_script_with_other_bytes_is_refused_by_name(azure: Machine, shell: Shell, name: str, message: str) -> None:
    path = rf"{SETUP_SCRIPTS}\{name}"
    azure.files.write(path, azure.files.read(path) + b"del C:\\x\r\n")
    with pytest.raises(UnknownCommandError, match=message):
        run_setup(azure, shell)


def test_the_clouds_address_is_restricted_at_first_boot(azure: Machine, shell: Shell) -> None:
    wanted = {"group": "Address", "members": ["packer"], "rule": "address", "address": "192.0.2.1", "ports": ["80"]}
    azure.files.write(RESTRICTED_ADDRESS, json.dumps(wanted).encode())
    run_setup(azure, shell)
    rule = azure.firewall.rule("address")
    assert rule is not None
    assert rule.remote_address == "192.0.2.1"
    log = azure.files.read(rf"{SETUP_SCRIPTS}\first-boot.log")
    assert log == b"failed: account packer could not be added to group Address: it does not exist\r\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "Invalid JSON: "),
        (b"\xff", "Invalid JSON: "),
        (b"[]", "Input should be an object"),
        (b'{"group": "g", "members": [], "address": "192.0.2.1", "ports": ["80"]}', "rule: Field required"),
        (b'{"group": "g", "members": [], "rule": "r", "address": "192.0.2.1", "ports": 80}', "ports: "),
    ],
)
def test_a_file_of_the_address_that_cannot_be_read_is_a_line_in_the_log(
    azure: Machine, shell: Shell, data: bytes, reason: str
) -> None:
    azure.files.write(RESTRICTED_ADDRESS, data)
    setup = run_setup(azure, shell)
    log = azure.files.read(rf"{SETUP_SCRIPTS}\first-boot.log").decode()
    assert log.startswith(f"failed: cannot read {RESTRICTED_ADDRESS}: {reason}")
    assert setup.setup_complete is not None
    assert not built_in(azure).enabled, "the other parts run"


def test_a_byte_order_mark_spoils_no_file_of_first_boot(azure: Machine, shell: Shell) -> None:
    accounts = rf"{SETUP_SCRIPTS}\accounts.txt"
    azure.files.write(accounts, b"\xef\xbb\xbf" + azure.files.read(accounts))
    wanted = {"group": "Address", "members": [], "rule": "address", "address": "192.0.2.1", "ports": ["80"]}
    azure.files.write(RESTRICTED_ADDRESS, b"\xef\xbb\xbf" + json.dumps(wanted).encode())
    run_setup(azure, shell)
    assert azure.files.read(rf"{SETUP_SCRIPTS}\first-boot.log") == b""
    assert not built_in(azure).enabled
    assert azure.firewall.rule("address") is not None


def test_a_list_of_accounts_with_other_bytes_closes_none(azure: Machine, shell: Shell) -> None:
    """As .NET reads it: the line is no account's number, and nothing fails."""
    azure.files.write(rf"{SETUP_SCRIPTS}\accounts.txt", b"\xe9\r\n")
    run_setup(azure, shell)
    assert azure.files.read(rf"{SETUP_SCRIPTS}\first-boot.log") == b""
    assert built_in(azure).enabled


def test_what_a_part_did_before_it_failed_is_told(azure: Machine, shell: Shell) -> None:
    wanted = {"group": "Address", "members": ["nobody"], "rule": "address", "address": "192.0.2.1", "ports": ["80"]}
    azure.files.write(RESTRICTED_ADDRESS, json.dumps(wanted).encode())
    azure.services.stop("mpssvc")
    ended = shell.run(Process(azure, ("powershell.exe", "-File", FIRST_BOOT)))
    assert [line.split(" ")[-1] for line in ended.output.splitlines()[-2:]] == ["exist", "running"]


def test_the_model_has_every_part_of_the_script() -> None:
    text = (FILES / "first-boot.ps1").read_text()
    parts = re.search(r"foreach \(\$part in @\((.+)\)\) \{", text)
    assert parts
    assert tuple(re.findall(r"\{ ([A-Z][A-Za-z-]+)", parts[1])) == tuple(PARTS)
    assert f"-NewName '{CLOSED_ACCOUNT}'" in text
    assert "-contains '5986'" in text


def test_the_answer_file_of_the_package_is_the_one_that_sealing_names() -> None:
    script = (FILES.parents[3] / "packer" / "azure" / "generalise.ps1").read_text()
    assert f"$answers = '{UNATTEND}'" in script
