"""cloudbase-init's layer for the operating system, on the model machine: accounts, services, names, programs.

The methods have the names and the meaning of `cloudbaseinit.osutils`. One that is missing here fails the boot by name.
"""

from __future__ import annotations

import re
import secrets
import string
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine import access
from imagegen.rehearsal.machine.accounts import BUILT_IN_ADMINISTRATOR
from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL
from imagegen.rehearsal.machine.stock import SYSPREP_STATUS
from imagegen.rehearsal.machine.windows import SYSTEM32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.cloudbase_init.system import Surroundings

SERVICE: Final = "cloudbase-init"
STATE: Final = r"HKLM:\SOFTWARE\Cloudbase Solutions\Cloudbase-Init"
PROFILES: Final = r"HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\ProfileList"
_TIME_ZONE: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\TimeZoneInformation"
_MODES: Final = {"Automatic": AUTOMATIC, "Manual": MANUAL, "Disabled": DISABLED}
_STARTS: Final = {number: name for name, number in _MODES.items()}
_GENERALISED: Final = 7
# How long Setup may take to finish what sysprep began.
_BOOT_S: Final = 600.0
_ADAPTER: Final = ("Ethernet", "0A:FF:C0:00:00:07")
_GATEWAY: Final = "10.0.0.1"
CONSTANTS: Final = {
    "SERVICE_STATUS_STOPPED": "Stopped",
    "SERVICE_STATUS_RUNNING": "Running",
    "SERVICE_START_MODE_AUTOMATIC": "Automatic",
    "SERVICE_START_MODE_MANUAL": "Manual",
    "SERVICE_START_MODE_DISABLED": "Disabled",
    "LOGON32_LOGON_BATCH": 4,
    "LOGON32_LOGON_INTERACTIVE": 2,
    "LOGON32_LOGON_SERVICE": 5,
}


class OsLayer:
    """The calls of cloudbase-init's `osutils`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._machine = around.machine
        self._accounts = around.machine.accounts
        self._services = around.machine.services

    def wait_for_boot_completion(self) -> None:
        def is_complete() -> bool:
            return self._machine.registry.number(SYSPREP_STATUS, "GeneralizationState") == _GENERALISED

        if not self._machine.wait_until(is_complete, _BOOT_S):
            raise RefusedByWindows("Windows Setup did not finish what sysprep began")

    def reboot(self) -> None:
        self._around.reboots = True

    def terminate(self) -> None:
        self._services.stop(SERVICE)

    def user_exists(self, username: str) -> bool:
        return self._accounts.user(username) is not None

    def create_user(self, username: str, password: str, password_expires: bool = False) -> None:
        self._accounts.add_user(username, password, password_expires=password_expires)

    def rename_user(self, username: str, new_username: str) -> None:
        self._accounts.rename_user(username, new_username)

    def set_user_info(
        self,
        username: str,
        full_name: str | None = None,  # noqa: ARG002 - the model's accounts have no full name
        disabled: bool = False,
        expire_interval: float | None = None,
    ) -> None:
        if expire_interval is not None:
            raise UnknownCommandError("the rehearsal does not know accounts that expire")
        self._accounts.need_user(username).enabled = not disabled

    def enum_users(self) -> list[str]:
        return [user.name for user in self._accounts.users]

    def is_builtin_admin(self, username: str) -> bool:
        user = self._accounts.user(username)
        return user is not None and user.number == BUILT_IN_ADMINISTRATOR

    def set_user_password(self, username: str, password: str, password_expires: bool = False) -> None:
        user = self._accounts.need_user(username)
        user.password, user.password_expires = password, password_expires

    def add_user_to_local_group(self, username: str, groupname: str) -> None:
        group, user = self._accounts.need_group(groupname), self._accounts.need_user(username)
        # cloudbase-init passes over Windows' error for a member that is there already.
        if user.number not in group.members:
            self._accounts.add_member(groupname, username)

    def group_exists(self, group: str) -> bool:
        return self._accounts.group(group) is not None

    def create_group(self, group: str, description: str | None = None) -> None:  # noqa: ARG002 - not kept
        self._accounts.add_group(group)

    def create_user_logon_session(
        self,
        username: str,
        password: str,
        domain: str = ".",  # noqa: ARG002 - a node is in none
        load_profile: bool = True,
        logon_type: int = 2,  # noqa: ARG002 - the model allows every kind
    ) -> str:
        user = self._accounts.need_user(username)
        if not user.enabled or user.password != password:
            raise RefusedByWindows("the user name or password is incorrect (error 1326)")
        if load_profile:
            self._make_profile(username)
        return username

    def close_user_logon_session(self, token: str) -> None:
        """The model has no open sessions."""

    def get_current_user(self) -> list[str]:
        return ["NT AUTHORITY" if self._around.user == "SYSTEM" else self._machine.host_name, self._around.user]

    def get_user_home(self, username: str) -> str | None:
        user = self._accounts.user(username)
        return (
            self._machine.registry.text(rf"{PROFILES}\{self._accounts.sid(user)}", "ProfileImagePath") if user else None
        )

    def generate_random_password(self, length: int) -> str:
        while True:
            password = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))
            if all(re.search(one, password) for one in ("[a-z]", "[A-Z]", "[0-9]")):
                return password

    def get_maximum_password_length(self) -> int:
        return 20

    def change_password_next_logon(self, username: str) -> None:
        user = self._accounts.need_user(username)
        user.password_expires = user.must_change_password = True

    def sanitize_shell_input(self, value: str) -> str:
        return value.replace('"', '\\"')

    def set_host_name(self, new_host_name: str) -> bool:
        self._machine.set_host_name(new_host_name)
        return True

    def check_service_exists(self, service_name: str) -> bool:
        return self._services.exists(service_name)

    def get_service_status(self, service_name: str) -> str:
        self._need_service(service_name)
        return "Running" if self._services.is_running(service_name) else "Stopped"

    def get_service_start_mode(self, service_name: str) -> str:
        self._need_service(service_name)
        start = self._services.start_type(service_name)
        if start not in _STARTS:
            raise UnknownCommandError(f"cloudbase-init has no name for start type {start} of service {service_name}")
        return _STARTS[start]

    def set_service_start_mode(self, service_name: str, start_mode: str) -> None:
        self._services.configure(service_name, "Start", Value("DWord", _start_type(start_mode)))

    def start_service(self, service_name: str) -> None:
        self._services.start(service_name)

    def stop_service(self, service_name: str, wait: bool = False) -> None:  # noqa: ARG002 - stops at once
        self._services.stop(service_name)

    def create_service(
        self,
        service_name: str,
        display_name: str,
        path: str,
        start_mode: str,
        username: str | None = None,
        password: str | None = None,  # noqa: ARG002 - Windows keeps it where the model does not look
    ) -> None:
        self._services.create(service_name, path, display_name, _start_type(start_mode))
        if username:
            self._services.configure(service_name, "ObjectName", Value("String", username))

    def delete_service(self, service_name: str) -> None:
        self._services.remove(service_name)

    def get_service_username(self, service_name: str) -> str:
        self._need_service(service_name)
        return self._machine.registry.text(self._services.key(service_name), "ObjectName") or "LocalSystem"

    def reset_service_password(self) -> list[str] | None:
        """A service with an account of its own gets another password, which no copy of the image has."""
        account = self.get_service_username(SERVICE) if self._services.exists(SERVICE) else ""
        domain, _, username = account.rpartition("\\")
        if domain != ".":
            return None
        password = self.generate_random_password(self.get_maximum_password_length())
        self.set_user_password(username, password)
        return [domain, username, password]

    def get_config_value(self, name: str, section: str | None = None) -> str | int | None:
        value = self._machine.registry.value(_state_key(section), name)
        return value.data if value and isinstance(value.data, str | int) else None

    def set_config_value(self, name: str, value: str | int, section: str | None = None) -> None:
        key = _state_key(section)
        self._machine.registry.make_key(key)
        self._machine.registry.write(key, name, Value("DWord" if isinstance(value, int) else "String", value))

    def get_os_version(self) -> dict[str, int]:
        return {"major_version": 10, "minor_version": 0, "build_number": int(self._machine.build), "product_type": 3}

    def check_os_version(self, major: int, minor: int, build: int = 0) -> bool:
        return (10, 0, int(self._machine.build)) >= (major, minor, build)

    def is_client_os(self) -> bool:
        return False

    def is_nano_server(self) -> bool:
        return False

    def check_dotnet_is_installed(self, version: str) -> bool:
        if version != "4":
            raise RefusedByWindows("Only checking for version 4 is supported at the moment")
        return self._machine.features.is_installed("NET-Framework-45-Core")

    def get_logical_drives(self) -> list[str]:
        return [f"{letter}\\" for letter in ("C:", *self._around.platform.drives)]

    def get_volume_label(self, drive: str) -> str | None:  # noqa: ARG002 - none has one
        return None

    def get_network_adapters(self) -> list[tuple[str, str]]:
        return [_ADAPTER]

    def get_dhcp_hosts_in_use(self) -> list[tuple[str, str, str]]:
        return [(*_ADAPTER, _GATEWAY)]

    def get_mac_address_by_local_ip(self, ip_addr: str) -> str | None:
        return _ADAPTER[1].lower() if ip_addr == NODE_ADDRESS else None

    def set_network_adapter_mtu(self, name: str, mtu: int) -> None:
        if name != _ADAPTER[0]:
            raise RefusedByWindows(f'Network interface with name "{name}" not found')
        self._machine.mtu[name] = mtu

    def get_default_gateway(self) -> tuple[int, str]:
        return 1, _GATEWAY

    def check_static_route_exists(self, destination: str) -> bool:
        """The clouds' own addresses are reached through the adapter."""
        return destination.startswith("169.254.")

    def is_real_time_clock_utc(self) -> bool:
        return bool(self._machine.registry.number(_TIME_ZONE, "RealTimeIsUniversal"))

    def set_real_time_clock_utc(self, utc: bool) -> None:
        self._machine.registry.make_key(_TIME_ZONE)
        self._machine.registry.write(_TIME_ZONE, "RealTimeIsUniversal", Value("DWord", int(utc)))

    def firewall_create_rule(self, name: str, port: int, protocol: str, allow: bool = True) -> None:
        if not allow or protocol not in ("TCP", "UDP"):
            raise UnknownCommandError(f"cloudbase-init cannot make the firewall rule {name}: it allows TCP or UDP only")
        self._machine.firewall.add(Rule(name, name, "in", "allow", protocol, str(port)))

    def get_file_version(self, path: str) -> tuple[int, int, int, int]:
        """The version that the program's stand-in says."""
        text = self._machine.files.read(path).decode("utf-8", "replace")
        found = re.search(r"(\d+)\.(\d+)\.(\d+)(?:\.(\d+))?", text)
        if found is None:
            raise RefusedByWindows(f"{path} has no version")
        first, second, third, fourth = (int(number or 0) for number in found.groups())
        return first, second, third, fourth

    def get_default_script_exec_header(self) -> str:
        return "rem cmd"

    def set_path_admin_acls(self, path: str) -> None:
        owners = [
            access.AccessEntry(sid, "FullControl", inherit=True) for sid in (access.SYSTEM, access.ADMINISTRATORS)
        ]
        access.write(self._machine.files, path, owners, protected=True)

    def take_path_ownership(self, path: str, username: str | None = None) -> None:
        """Owners change nothing here: SYSTEM and administrators have every right already."""

    def execute_process(self, args: Sequence[str], shell: bool = True, decode_output: bool = False) -> list[object]:  # noqa: ARG002
        ended = self._around.run_program(args, shell, self._around.user)
        return [ended.output.encode(), b"", ended.exit_code]

    def execute_process_as_user(
        self,
        token: str,
        args: Sequence[str],
        wait: bool = True,
        new_console: bool = False,  # noqa: ARG002 - nobody sees it
    ) -> int:
        if not wait:
            raise UnknownCommandError("what a program does that cloudbase-init starts and does not wait for")
        return self._around.run_program(args, False, token).exit_code

    def execute_system32_process(
        self,
        args: Sequence[str],
        shell: bool = True,
        decode_output: bool = False,
        sysnative: bool = True,  # noqa: ARG002 - both are the same programs
    ) -> list[object]:
        return self.execute_process([rf"{SYSTEM32}\{args[0]}", *args[1:]], shell, decode_output)

    def execute_powershell_script(self, script_path: str, sysnative: bool = True) -> list[object]:  # noqa: ARG002
        program = rf"{SYSTEM32}\WindowsPowerShell\v1.0\powershell.exe"
        line = [program, "-ExecutionPolicy", "RemoteSigned", "-NonInteractive", "-File", script_path]
        return self.execute_process(line, shell=False)

    def _make_profile(self, username: str) -> None:
        user = self._accounts.need_user(username)
        home, key = rf"C:\Users\{user.name}", rf"{PROFILES}\{self._accounts.sid(user)}"
        files = self._machine.files
        if not files.is_folder(home):
            files.make_folder(home)
            owners = (access.SYSTEM, access.ADMINISTRATORS, self._accounts.sid(user))
            entries = [access.AccessEntry(sid, "FullControl", inherit=True) for sid in owners]
            access.write(files, home, entries, protected=True)
        self._machine.registry.make_key(key)
        self._machine.registry.write(key, "ProfileImagePath", Value("ExpandString", home))

    def _need_service(self, name: str) -> None:
        if not self._services.exists(name):
            raise RefusedByWindows(f"there is no service {name} (error 1060)")


def _start_type(mode: str) -> int:
    if mode not in _MODES:
        raise RefusedByWindows(f"Invalid service start mode: {mode}")
    return _MODES[mode]


def _state_key(section: str | None) -> str:
    return rf"{STATE}\{section}".replace("/", "\\") if section else STATE
