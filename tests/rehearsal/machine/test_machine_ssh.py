"""The OpenSSH server of the model machine: how it is added, what it reads, and whom it lets in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import ROLES
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.access import SYSTEM, USERS, AccessEntry, write
from imagegen.rehearsal.machine.bundle import COMMON
from imagegen.rehearsal.machine.commands import run_program
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.ssh_server import OF_WINDOWS, add_server, find_keys_file, logs_in
from imagegen.rehearsal.machine.sshd import CONFIG, HOST_KEYS, read_settings
from imagegen.rehearsal.machine.stock import stock_windows

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench

FOLDER = r"C:\k\ssh"
SCRIPT = ROLES / "ssh" / "files" / "add-ssh-server.ps1"
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
LINE = rf"-NoProfile -NonInteractive -ExecutionPolicy Bypass -File {FOLDER}\add-ssh-server.ps1"
KEY = "ssh-rsa AAAA name"
OF_USER = r"C:\Users\capi\.ssh\authorized_keys"
OF_ADMINISTRATORS = r"C:\ProgramData\ssh\administrators_authorized_keys"


def put(machine: Machine, path: str, data: bytes) -> None:
    machine.files.make_folder(path.rpartition("\\")[0])
    machine.files.write(path, data)


@pytest.mark.parametrize(("release", "has_it"), [("2019", False), ("2022", False), ("2025", True), ("annual", False)])
def test_the_releases_that_have_the_server(release: str, has_it: bool, tmp_path: Path) -> None:
    machine = stock_windows(tmp_path / "disk", release=release, cloud="aws")
    put(machine, rf"{FOLDER}\add-ssh-server.ps1", SCRIPT.read_bytes())
    assert run_program(machine, POWERSHELL, f"{LINE} -Show") == (0, f"installed={has_it}\r\n")
    assert not machine.services.is_running("sshd")
    assert run_program(machine, POWERSHELL, LINE) == (1, f"failed: there is no module {COMMON}\r\n")
    put(machine, COMMON, b"")
    assert run_program(machine, POWERSHELL, LINE) == (0, "")
    assert run_program(machine, POWERSHELL, f"{LINE} -Show") == (0, "installed=True\r\n")


def test_the_script_needs_the_task_scheduler(bench: Bench) -> None:
    put(bench.machine, rf"{FOLDER}\add-ssh-server.ps1", SCRIPT.read_bytes())
    put(bench.machine, COMMON, b"")
    bench.machine.services.stop("Schedule")
    code, output = run_program(bench.machine, POWERSHELL, LINE)
    assert (code, "task scheduler" in output) == (1, True)


def test_another_script_is_refused_by_name(bench: Bench) -> None:
    assert run_program(bench.machine, POWERSHELL, LINE)[0] == 1
    put(bench.machine, rf"{FOLDER}\add-ssh-server.ps1", SCRIPT.read_bytes() + b" ")
    with pytest.raises(UnknownCommandError, match=r"add-ssh-server\.ps1 is not the script"):
        run_program(bench.machine, POWERSHELL, LINE)


def test_sshd_makes_its_keys_once_and_closes_them(bench: Bench) -> None:
    machine = bench.machine
    add_server(machine)
    assert not any(machine.files.is_file(path) for path in HOST_KEYS)
    machine.services.start("sshd")
    keys = [machine.files.read(path) for path in HOST_KEYS]
    assert len(set(keys)) == len(HOST_KEYS)
    assert machine.files.is_file(CONFIG)
    machine.services.stop("sshd")
    machine.services.start("sshd")
    assert [machine.files.read(path) for path in HOST_KEYS] == keys


@pytest.mark.parametrize(
    ("text", "port", "passwords", "file"),
    [
        ("", 22, True, OF_USER),
        ("# Port 1\n\nport 2222\nPort 3\n", 2222, True, OF_USER),
        ("PasswordAuthentication no\n", 22, False, OF_USER),
        ("PasswordAuthentication=no\nMatch Group administrators\nPasswordAuthentication yes\n", 22, True, OF_USER),
        ("AuthorizedKeysFile %h/keys other\n", 22, True, r"C:\Users\capi\keys"),
        (
            "Match Group administrators\nAuthorizedKeysFile __PROGRAMDATA__/ssh/administrators_authorized_keys\n",
            *(22, True, OF_ADMINISTRATORS),
        ),
    ],
)
def test_the_configuration(bench: Bench, text: str, port: int, passwords: bool, file: str) -> None:
    machine = bench.machine
    put(machine, CONFIG, text.encode())
    settings = read_settings(machine.files)
    assert (settings.port, settings.accepts_passwords) == (port, passwords)
    user = machine.accounts.add_user("capi", "x")
    machine.accounts.add_member("Administrators", "capi")
    assert find_keys_file(machine, user) == file


def test_windows_own_configuration_names_another_file_for_administrators(bench: Bench) -> None:
    machine = bench.machine
    user = machine.accounts.add_user("capi", "x")
    assert find_keys_file(machine, user) == OF_USER
    machine.accounts.add_member("Administrators", "capi")
    assert find_keys_file(machine, user) == OF_ADMINISTRATORS


@pytest.mark.parametrize("line", ["Colour yes", "Port"])
def test_sshd_ends_at_a_line_that_it_cannot_read(bench: Bench, line: str) -> None:
    machine = bench.machine
    add_server(machine)
    put(machine, CONFIG, f"Port 22\n{line}\n".encode())
    with pytest.raises(RefusedByWindows, match="line 2: Bad configuration option"):
        machine.services.start("sshd")
    assert machine.services.command("sshd") == rf"{OF_WINDOWS}\sshd.exe"


def test_a_block_that_the_rehearsal_does_not_know_is_refused_by_name(bench: Bench) -> None:
    put(bench.machine, CONFIG, b"Match User capi\n")
    with pytest.raises(UnknownCommandError, match="Match User capi"):
        read_settings(bench.machine.files)


@pytest.mark.parametrize(
    ("config", "keys", "rights", "enabled", "lets_in"),
    [
        ("", KEY, None, True, True),
        ("", KEY, "ReadAndExecute", True, True),
        ("", KEY, "Modify", True, False),
        ("", KEY, None, False, False),
        ("", "ssh-rsa BBBB name", None, True, False),
        ("", None, None, True, False),
        ("PubkeyAuthentication no\n", KEY, None, True, False),
    ],
)
def test_who_logs_in(
    bench: Bench, config: str, keys: str | None, rights: str | None, enabled: bool, lets_in: bool
) -> None:
    machine = bench.machine
    put(machine, CONFIG, config.encode())
    user = machine.accounts.add_user("capi", "x")
    user.enabled = enabled
    if keys is not None:
        put(machine, OF_USER, f"{keys}\n".encode())
        entries = [AccessEntry(SYSTEM, "FullControl", inherit=False)]
        entries += [AccessEntry(USERS, rights, inherit=False)] if rights else []
        write(machine.files, OF_USER, entries, protected=True)
    assert logs_in(machine, user, KEY) is lets_in
