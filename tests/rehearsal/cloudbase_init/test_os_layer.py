"""Each call of cloudbase-init's own layer for the operating system: its answer, and the machine afterwards."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.cloudbase_init.os_layer import PROFILES, STATE, OsLayer
from imagegen.rehearsal.machine import access
from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.stock import SYSPREP_STATUS
from tests.rehearsal.cloudbase_init.conftest import PROGRAM, SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rehearsal.cloudbase_init.conftest import Calls

_CLOCK = r"HKLM:\SYSTEM\CurrentControlSet\Control\TimeZoneInformation"
_POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
_MAC = "0A:FF:C0:00:00:07"


@dataclasses.dataclass(frozen=True)
class Case:
    """A call after those of `given`: its answer, and what `look` then finds."""

    method: str
    arguments: tuple[object, ...] = ()
    value: object = None
    named: dict[str, object] = dataclasses.field(default_factory=dict)
    given: tuple[tuple[object, ...], ...] = ()
    look: Callable[[Calls], object] = lambda _: None
    found: object = None


def _user(name: str, *fields: str) -> Callable[[Calls], object]:
    return lambda calls: [getattr(calls.machine.accounts.need_user(name), field) for field in fields]


def _members(group: str) -> Callable[[Calls], object]:
    return lambda calls: len(calls.machine.accounts.need_group(group).members)


def _registry(key: str, name: str) -> Callable[[Calls], object]:
    return lambda calls: calls.machine.registry.value(key, name)


def _service(name: str) -> Callable[[Calls], object]:
    return lambda calls: (
        calls.machine.services.exists(name),
        calls.machine.services.start_type(name),
        calls.machine.services.is_running(name),
    )


def _record(name: str, value: str) -> Callable[[Calls], object]:
    return lambda calls: calls.machine.registry.text(calls.machine.services.key(name), value)


def _host_names(calls: Calls) -> object:
    """Before and after a restart."""
    before = calls.machine.host_name
    calls.machine.restart()
    return before, calls.machine.host_name


def _lines(calls: Calls) -> object:
    return calls.programs.lines


def _rules(calls: Calls) -> object:
    rule = calls.machine.firewall.rule("web")
    return rule and (rule.direction, rule.action, rule.protocol, rule.port, rule.enabled)


def _access(path: str) -> Callable[[Calls], object]:
    def look(calls: Calls) -> object:
        found = access.effective(calls.machine.files, path)
        return found.protected, {entry.sid: entry.rights for entry in found.entries}

    return look


_ANNE = ("os_create_user", "anne", "p1")
_OWNERS_ONLY = {access.SYSTEM: "FullControl", access.ADMINISTRATORS: "FullControl"}
_SERVICE_OF_ANNE = ("os_create_service", "own", "Own", f'"{PROGRAM}"', "Automatic", r".\anne", "p1")
CASES = {
    "Setup has ended": Case("wait_for_boot_completion"),
    "a restart is asked for": Case("reboot", look=lambda calls: calls.around.reboots, found=True),
    "the service ends itself": Case(
        "terminate", given=(("os_start_service", SERVICE),), look=_service(SERVICE), found=(True, 3, False)
    ),
    "an account, in any case": Case("user_exists", ("administrator",), value=True),
    "no account": Case("user_exists", ("anne",), value=False),
    "a new account": Case(
        "create_user", ("anne", "p1"), look=_user("anne", "password", "password_expires"), found=["p1", False]
    ),
    "a new account with a password that expires": Case(
        "create_user", ("anne", "p1", True), look=_user("anne", "password_expires"), found=[True]
    ),
    "another name": Case("rename_user", ("Administrator", "root"), look=_user("root", "number"), found=[500]),
    "an account disabled": Case(
        "set_user_info",
        ("anne",),
        named={"full_name": "Anne", "disabled": True},
        given=(_ANNE,),
        look=_user("anne", "enabled"),
        found=[False],
    ),
    "an account enabled": Case("set_user_info", ("Guest",), look=_user("guest", "enabled"), found=[True]),
    "all accounts": Case("enum_users", value=["Guest", "DefaultAccount", "Administrator"]),
    "the built-in administrator, under any name": Case(
        "is_builtin_admin", ("root",), given=(("os_rename_user", "Administrator", "root"),), value=True
    ),
    "another account than the built-in administrator": Case("is_builtin_admin", ("Guest",), value=False),
    "no account as administrator": Case("is_builtin_admin", ("anne",), value=False),
    "another password": Case(
        "set_user_password",
        ("anne", "p2"),
        given=(("os_create_user", "anne", "p1", True),),
        look=_user("anne", "password", "password_expires"),
        found=["p2", False],
    ),
    "a member of a group": Case(
        "add_user_to_local_group", ("anne", "Administrators"), given=(_ANNE,), look=_members("administrators"), found=2
    ),
    "a member twice": Case(
        "add_user_to_local_group", ("Administrator", "Administrators"), look=_members("Administrators"), found=1
    ),
    "a group": Case("group_exists", ("users",), value=True),
    "no group": Case("group_exists", ("staff",), value=False),
    "a new group": Case("create_group", ("staff", "people"), look=_members("staff"), found=0),
    "a session makes a profile": Case(
        "create_user_logon_session",
        ("anne", "p1"),
        given=(_ANNE,),
        value="anne",
        look=lambda calls: len(access.effective(calls.machine.files, r"C:\Users\anne").entries),
        found=3,
    ),
    "a session without a profile": Case(
        "create_user_logon_session",
        ("anne", "p1"),
        named={"load_profile": False, "logon_type": 4},
        given=(_ANNE,),
        value="anne",
        look=lambda calls: calls.machine.files.exists(r"C:\Users\anne"),
        found=False,
    ),
    "the end of a session": Case("close_user_logon_session", ("anne",)),
    "its own account": Case("get_current_user", value=["NT AUTHORITY", "SYSTEM"]),
    "a home": Case(
        "get_user_home",
        ("anne",),
        given=(_ANNE, ("os_create_user_logon_session", "anne", "p1")),
        value=r"C:\Users\anne",
    ),
    "no home yet": Case("get_user_home", ("anne",), given=(_ANNE,)),
    "no home without an account": Case("get_user_home", ("anne",)),
    "the longest password": Case("get_maximum_password_length", value=20),
    "a password for one time": Case(
        "change_password_next_logon",
        ("anne",),
        given=(_ANNE,),
        look=_user("anne", "must_change_password", "password_expires"),
        found=[True, True],
    ),
    "a quote for the shell": Case("sanitize_shell_input", ('a"b',), value='a\\"b'),
    "another host name, after a restart": Case(
        "set_host_name",
        ("node-7",),
        value=True,
        look=_host_names,
        found=("WIN-0A1B2C3D4E5", "node-7"),
    ),
    "a service": Case("check_service_exists", ("w32time",), value=True),
    "no service": Case("check_service_exists", ("own",), value=False),
    "a running service": Case("get_service_status", ("RpcSs",), value="Running"),
    "a stopped service": Case("get_service_status", ("W32Time",), value="Stopped"),
    "an automatic service": Case("get_service_start_mode", ("RpcSs",), value="Automatic"),
    "a manual service": Case("get_service_start_mode", ("W32Time",), value="Manual"),
    "a disabled service": Case(
        "get_service_start_mode",
        ("W32Time",),
        given=(("os_set_service_start_mode", "W32Time", "Disabled"),),
        value="Disabled",
    ),
    "another start mode": Case(
        "set_service_start_mode", ("W32Time", "Automatic"), look=_service("W32Time"), found=(True, 2, False)
    ),
    "a start": Case("start_service", ("W32Time",), look=_service("W32Time"), found=(True, 3, True)),
    "a stop": Case("stop_service", ("WinRM", True), look=_service("WinRM"), found=(True, 2, False)),
    "a new service": Case(
        "create_service",
        ("own", "Own", f'"{PROGRAM}"', "Manual"),
        look=lambda calls: (_service("own")(calls), _record("own", "ObjectName")(calls)),
        found=((True, 3, False), "LocalSystem"),
    ),
    "a new service with an account": Case(
        "create_service", _SERVICE_OF_ANNE[1:], look=_record("own", "ObjectName"), found=r".\anne"
    ),
    "a service removed": Case("delete_service", ("W32Time",), look=_service("W32Time"), found=(False, 4, False)),
    "the account of a service": Case(
        "get_service_username", ("own",), given=(_ANNE, _SERVICE_OF_ANNE), value=r".\anne"
    ),
    "a service without an account": Case("get_service_username", ("RpcSs",), value="LocalSystem"),
    "no password for LocalSystem": Case("reset_service_password"),
    "no value": Case("get_config_value", ("Plugin",)),
    "a value of a section": Case(
        "get_config_value",
        ("Plugin", "i-1/Plugins"),
        given=(("os_set_config_value", "Plugin", 2, "i-1/Plugins"),),
        value=2,
    ),
    "a number kept": Case(
        "set_config_value",
        ("Plugin", 1, "i-1/Plugins"),
        look=_registry(rf"{STATE}\i-1\Plugins", "Plugin"),
        found=Value("DWord", 1),
    ),
    "a text kept": Case("set_config_value", ("Name", "a"), look=_registry(STATE, "Name"), found=Value("String", "a")),
    "the version of Windows": Case(
        "get_os_version", value={"major_version": 10, "minor_version": 0, "build_number": 20348, "product_type": 3}
    ),
    "at least Windows 8": Case("check_os_version", (6, 2), value=True),
    "at least this build": Case("check_os_version", (10, 0, 20348), value=True),
    "no later build": Case("check_os_version", (10, 0, 20349), value=False),
    "no client": Case("is_client_os", value=False),
    "no Nano Server": Case("is_nano_server", value=False),
    ".NET": Case("check_dotnet_is_installed", ("4",), value=True),
    "the drives": Case("get_logical_drives", value=["C:\\", "E:\\"]),
    "no label": Case("get_volume_label", ("E:\\",)),
    "the adapter": Case("get_network_adapters", value=[("Ethernet", _MAC)]),
    "the DHCP server": Case("get_dhcp_hosts_in_use", value=[("Ethernet", _MAC, "10.0.0.1")]),
    "the adapter of an address": Case("get_mac_address_by_local_ip", (NODE_ADDRESS,), value=_MAC.lower()),
    "no adapter of an address": Case("get_mac_address_by_local_ip", ("10.0.0.8",)),
    "the MTU": Case(
        "set_network_adapter_mtu", ("Ethernet", 9001), look=lambda calls: calls.machine.mtu, found={"Ethernet": 9001}
    ),
    "the gateway": Case("get_default_gateway", value=(1, "10.0.0.1")),
    "a route to the cloud": Case("check_static_route_exists", ("169.254.169.254",), value=True),
    "no route to elsewhere": Case("check_static_route_exists", ("10.9.9.9",), value=False),
    "a clock in local time": Case("is_real_time_clock_utc", value=False),
    "a clock in UTC": Case("is_real_time_clock_utc", given=(("os_set_real_time_clock_utc", True),), value=True),
    "the clock set": Case(
        "set_real_time_clock_utc", (True,), look=_registry(_CLOCK, "RealTimeIsUniversal"), found=Value("DWord", 1)
    ),
    "a port opened": Case(
        "firewall_create_rule", ("web", 443, "TCP"), look=_rules, found=("in", "allow", "TCP", "443", True)
    ),
    "the version of a file": Case("get_file_version", (PROGRAM,), value=(1, 2, 3, 0)),
    "the header of a script": Case("get_default_script_exec_header", value="rem cmd"),
    "a folder closed": Case(
        "set_path_admin_acls", (r"C:\ProgramData",), look=_access(r"C:\ProgramData"), found=(True, _OWNERS_ONLY)
    ),
    "an owner": Case("take_path_ownership", (PROGRAM, "Administrator")),
    "a program": Case(
        "execute_process",
        (["a.exe", "b"],),
        named={"shell": False, "decode_output": True},
        value=[b"said", b"", 3],
        look=_lines,
        found=[(("a.exe", "b"), False, "SYSTEM")],
    ),
    "a program in the shell": Case(
        "execute_process", (["a"],), value=[b"said", b"", 3], look=_lines, found=[(("a",), True, "SYSTEM")]
    ),
    "a program of another account": Case(
        "execute_process_as_user", ("anne", ["a"]), value=3, look=_lines, found=[(("a",), False, "anne")]
    ),
    "a program of Windows": Case(
        "execute_system32_process",
        (["sc.exe", "query"],),
        named={"shell": False, "sysnative": True},
        value=[b"said", b"", 3],
        look=_lines,
        found=[((r"C:\Windows\System32\sc.exe", "query"), False, "SYSTEM")],
    ),
    "a script": Case(
        "execute_powershell_script",
        (r"C:\a.ps1", True),
        value=[b"said", b"", 3],
        look=_lines,
        found=[
            (
                (_POWERSHELL, "-ExecutionPolicy", "RemoteSigned", "-NonInteractive", "-File", r"C:\a.ps1"),
                False,
                "SYSTEM",
            )
        ],
    ),
}


def _values(answer: Any) -> Any:  # noqa: ANN401 - as the channel has it
    return [_values(one) for one in answer] if isinstance(answer, list | tuple) else answer


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_call_has_its_answer_and_its_effect(calls: Calls, case: Case) -> None:
    for name, *arguments in case.given:
        calls(str(name), *arguments)
    assert _values(calls(f"os_{case.method}", *case.arguments, **case.named)) == _values(case.value)
    assert case.look(calls) == case.found
    assert calls.around.unknown == []


def test_every_method_has_a_case() -> None:
    methods = {name for name in vars(OsLayer) if not name.startswith("_")}
    assert methods - {case.method for case in CASES.values()} == {"generate_random_password"}


def test_a_service_of_an_own_account_gets_a_password_that_the_image_does_not_have(calls: Calls) -> None:
    calls(*_ANNE)
    calls.machine.services.configure(SERVICE, "ObjectName", Value("String", r".\anne"))
    domain, name, password = calls("os_reset_service_password")
    assert (domain, name) == (".", "anne")
    assert calls.machine.accounts.need_user("anne").password == password
    assert len(password) == 20
    calls.machine.services.remove(SERVICE)
    assert calls("os_reset_service_password") is None


def test_the_account_of_a_service_of_the_domain_keeps_its_password(calls: Calls) -> None:
    calls.machine.services.configure(SERVICE, "ObjectName", Value("String", r"EXAMPLE\anne"))
    assert calls("os_reset_service_password") is None


def test_a_random_password_has_what_windows_demands(calls: Calls) -> None:
    found = {calls("os_generate_random_password", 20) for _ in range(50)}
    assert len(found) == 50
    for password in found:
        assert re.fullmatch("(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9]{20}", password)


def test_an_account_of_its_own_is_named_with_the_machine(calls: Calls) -> None:
    calls.around.user = "anne"
    assert calls("os_get_current_user") == ["WIN-0A1B2C3D4E5", "anne"]
    calls("os_execute_process", ["a"])
    assert calls.programs.lines == [(("a",), True, "anne")]


def test_a_second_session_finds_the_home(calls: Calls) -> None:
    for line in (_ANNE, *[("os_create_user_logon_session", "anne", "p1")] * 2):
        calls(*line)
    sid = calls.machine.accounts.sid(calls.machine.accounts.need_user("anne"))
    assert calls.machine.registry.text(rf"{PROFILES}\{sid}", "ProfileImagePath") == r"C:\Users\anne"
    found = access.effective(calls.machine.files, r"C:\Users\anne")
    assert found.protected
    assert {entry.sid for entry in found.entries} == {access.SYSTEM, access.ADMINISTRATORS, sid}


def test_windows_setup_is_waited_for_in_the_machines_time(calls: Calls) -> None:
    registry = calls.machine.registry
    registry.write(SYSPREP_STATUS, "GeneralizationState", Value("DWord", 4))
    began = calls.machine.up_s
    assert calls.answer("os_wait_for_boot_completion")["kind"] == "refused"
    assert calls.machine.up_s - began == 600


def test_the_names_of_windows_are_the_same_as_those_that_calls_return(calls: Calls) -> None:
    constants = calls("constants")
    assert calls("os_get_service_status", "RpcSs") == constants["SERVICE_STATUS_RUNNING"]
    assert calls("os_get_service_status", "W32Time") == constants["SERVICE_STATUS_STOPPED"]
    for mode in ("AUTOMATIC", "MANUAL", "DISABLED"):
        calls("os_set_service_start_mode", "W32Time", constants[f"SERVICE_START_MODE_{mode}"])
        assert calls("os_get_service_start_mode", "W32Time") == constants[f"SERVICE_START_MODE_{mode}"]
