"""What Windows or the rehearsal refuses of cloudbase-init's layer for the operating system, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.rehearsal.cloudbase_init.conftest import Calls

# What Windows answers with an error, which cloudbase-init handles or logs.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "an account twice": (("create_user", "guest", "p"), "already"),
    "another name without an account": (("rename_user", "anne", "bob"), "no account anne"),
    "settings without an account": (("set_user_info", "anne"), "no account anne"),
    "a password without an account": (("set_user_password", "anne", "p"), "no account anne"),
    "a password for one time without an account": (("change_password_next_logon", "anne"), "no account anne"),
    "a member without an account": (("add_user_to_local_group", "anne", "Users"), "no account anne"),
    "a member without a group": (("add_user_to_local_group", "Guest", "staff"), "no group staff"),
    "a group twice": (("create_group", "users"), "already"),
    "a session without an account": (("create_user_logon_session", "anne", "p"), "no account anne"),
    "a session with a wrong password": (("create_user_logon_session", "Administrator", "p"), "1326"),
    "the status of no service": (("get_service_status", "own"), "1060"),
    "the start mode of no service": (("get_service_start_mode", "own"), "1060"),
    "the account of no service": (("get_service_username", "own"), "1060"),
    "another start mode of no service": (("set_service_start_mode", "own", "Manual"), "1060"),
    "an unknown start mode": (("set_service_start_mode", "W32Time", "Sometimes"), "Sometimes"),
    "a start without a service": (("start_service", "own"), "1060"),
    "a stop without a service": (("stop_service", "own"), "1060"),
    "no service to remove": (("delete_service", "own"), "1060"),
    "a service twice": (("create_service", "W32Time", "T", "a.exe", "Manual"), "1073"),
    "a service with an unknown start mode": (("create_service", "own", "O", "a.exe", "Sometimes"), "Sometimes"),
    "a number that the registry cannot hold": (("set_config_value", "a", -1), "-1"),
    "another .NET": (("check_dotnet_is_installed", "3.5"), "version 4"),
    "the MTU of no adapter": (("set_network_adapter_mtu", "Wi-Fi", 1500), "Wi-Fi"),
    "a file without a version": (("get_file_version", r"C:\Windows\System32\sc.exe"), "sc.exe has no version"),
    "the version of no file": (("get_file_version", r"C:\missing"), "missing"),
    "rights on no file": (("set_path_admin_acls", r"C:\missing"), "missing"),
}


@pytest.mark.parametrize(("call", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_windows_refuses_is_an_error_of_cloudbase_init(calls: Calls, call: tuple[Any, ...], named: str) -> None:
    found = calls.answer(f"os_{call[0]}", *call[1:])
    assert found["kind"] in ("refused", "missing")
    assert named in found["error"]
    assert calls.around.unknown == []


# Windows would do something that the model cannot show.
UNKNOWN: dict[str, tuple[tuple[Any, ...], str]] = {
    "accounts that expire": (("set_user_info", "Guest", None, False, 60.0), "accounts that expire"),
    "a driver": (("get_service_start_mode", "Tcpip"), "start type 0 of service Tcpip"),
    "a rule that blocks": (("firewall_create_rule", "web", 443, "TCP", False), "firewall rule web"),
    "a rule for another protocol": (("firewall_create_rule", "web", 443, "ICMP"), "firewall rule web"),
    "a program that is not waited for": (("execute_process_as_user", "anne", ["a"], False), "does not wait for"),
    "a method": (("set_timezone", "UTC"), "does not know set_timezone of"),
    "an attribute": (("_machine",), "does not know _machine of"),
    "no argument": (("user_exists",), "this call of user_exists"),
    "too many arguments": (("reboot", 1), "this call of reboot"),
}


@pytest.mark.parametrize(("call", "named"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_the_model_does_not_know_fails_the_boot_by_name(calls: Calls, call: tuple[Any, ...], named: str) -> None:
    before = repr(calls.machine.registry.__dict__), calls.machine.accounts.users, calls.machine.firewall.rules
    found = calls.answer(f"os_{call[0]}", *call[1:])
    assert (found["kind"], calls.around.unknown) == ("unknown", [found["error"]])
    assert named in found["error"]
    after = repr(calls.machine.registry.__dict__), calls.machine.accounts.users, calls.machine.firewall.rules
    assert (after, calls.programs.lines) == (before, [])


def test_a_named_argument_that_a_call_does_not_have_is_named(calls: Calls) -> None:
    found = calls.answer("os_reboot", force=True)
    assert found["kind"] == "unknown"
    assert "'force'" in found["error"]
    assert not calls.around.reboots
