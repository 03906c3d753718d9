"""Accounts, groups and the name of the model machine, and the machine that starts from a copy of its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.accounts import BUILT_IN_ADMINISTRATOR, Accounts
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.stock import stock_windows

if TYPE_CHECKING:
    from pathlib import Path


def test_a_renamed_account_keeps_its_number_and_its_groups() -> None:
    accounts = Accounts()
    accounts.rename_user("administrator", "packer")
    [user] = [user for user in accounts.users if user.number == BUILT_IN_ADMINISTRATOR]
    assert user.name == "packer"
    assert accounts.user("Administrator") is None
    assert [group.name for group in accounts.groups_of(user)] == ["Administrators"]


def test_sysprep_changes_the_sid_and_no_number() -> None:
    accounts = Accounts()
    user = accounts.add_user("capi", "secret")
    before = accounts.sid(user)
    accounts.generalised()
    assert accounts.sid(user) != before
    assert accounts.sid(user).rpartition("-")[2] == before.rpartition("-")[2] == "1000"


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (lambda accounts: accounts.add_user("ADMINISTRATOR", ""), "2224"),
        (lambda accounts: accounts.add_group("users"), "2224"),
        (lambda accounts: accounts.add_user("a" * 21, ""), "2202"),
        (lambda accounts: accounts.add_user("a/b", ""), "2202"),
        (lambda accounts: accounts.add_member("Administrators", "Administrator"), "1378"),
        (lambda accounts: accounts.add_member("Operators", "Administrator"), "1376"),
        (lambda accounts: accounts.rename_user("nobody", "somebody"), "2221"),
    ],
)
def test_what_windows_refuses(refused: object, code: str) -> None:
    assert callable(refused)
    with pytest.raises(RefusedByWindows, match=code):
        refused(Accounts())


def test_a_copy_has_a_disk_and_a_state_of_its_own(tmp_path: Path) -> None:
    machine = stock_windows(tmp_path / "one", release="2022", cloud="aws")
    machine.files.write(r"C:\Windows\Temp\note.txt", b"before")
    key = r"HKLM:\SOFTWARE\Node"
    machine.registry.make_key(key)
    machine.services.on_start["dnscache"] = lambda: machine.files.remove(r"C:\Windows\Temp\note.txt")
    copied = machine.copy(tmp_path / "two")
    machine.files.write(r"C:\Windows\Temp\note.txt", b"after")
    machine.registry.write(key, "Name", Value("String", "after"))
    machine.services.stop("WinRM")
    machine.accounts.add_user("capi", "secret")
    assert copied.files.read(r"C:\Windows\Temp\note.txt") == b"before"
    assert copied.registry.value(key, "Name") is None
    assert copied.services.is_running("WinRM")
    assert copied.accounts.user("capi") is None
    copied.registry.write(key, "Name", Value("String", "copy"))
    copied.services.stop("Dnscache")
    copied.services.start("Dnscache")
    assert machine.files.is_file(r"C:\Windows\Temp\note.txt"), "what a service of the machine does, the copy's does not"
    copied.services.stop("Dnscache")
    assert machine.registry.text(key, "Name") == "after"
    assert machine.services.is_running("Dnscache")


def test_a_base_image_has_the_accounts_that_a_config_expects(tmp_path: Path) -> None:
    machine = stock_windows(tmp_path, release="2022", cloud="azure", accounts=["monitoring", "backup agent"])
    monitoring, agent = (machine.accounts.need_user(name) for name in ("Monitoring", "backup agent"))
    assert monitoring.enabled
    assert not agent.password_expires


def test_another_name_is_in_force_after_the_next_start(tmp_path: Path) -> None:
    machine = stock_windows(tmp_path, release="2022", cloud="aws")
    before = machine.host_name
    machine.set_host_name("ip-10-0-0-7-longer")
    assert machine.host_name == before
    machine.restart()
    assert machine.host_name == "ip-10-0-0-7-longer"
    key = r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName"
    assert machine.registry.text(key, "ComputerName") == "IP-10-0-0-7-LON"


@pytest.mark.parametrize("name", ["", "a.b", "-a", "a-", "12345", "a" * 64, "a b"])
def test_names_that_windows_refuses(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedByWindows, match="123"):
        stock_windows(tmp_path, release="2022", cloud="aws").set_host_name(name)
