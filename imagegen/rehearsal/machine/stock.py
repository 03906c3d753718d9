"""The machine that a cloud starts from its Windows Server Core image, as data."""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.rehearsal.clouds import guest_agents
from imagegen.rehearsal.machine.access import (
    ADMINISTRATORS,
    AUTHENTICATED_USERS,
    CREATE,
    ONLY_BELOW,
    SYSTEM,
    USERS,
    AccessEntry,
    write,
)
from imagegen.rehearsal.machine.access import FOLDERS as IN_FOLDERS
from imagegen.rehearsal.machine.answers import make_answer_file
from imagegen.rehearsal.machine.certificates import ROOT, Certificate
from imagegen.rehearsal.machine.commands import BALANCED, POWER_PLANS
from imagegen.rehearsal.machine.defender import SERVICE as WIN_DEFEND
from imagegen.rehearsal.machine.features import SERVICING
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.host_name import TCPIP
from imagegen.rehearsal.machine.installer import UNINSTALL, UNINSTALL_32
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, BOOT, MANUAL
from imagegen.rehearsal.machine.time_zone import UTC, write_time_zone
from imagegen.rehearsal.machine.triggers import DOMAIN_JOINED, NOT_IN_A_DOMAIN, write_triggers
from imagegen.rehearsal.machine.updates import CURRENT_VERSION, stock_offers
from imagegen.rehearsal.machine.windows import ENVIRONMENT, SYSTEM32, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from imagegen.rehearsal.machine.agents import Agents, StockService

IMAGE_STATE = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State"
# Setup leaves this value in GeneralizationState. Without it sysprep fails.
SYSPREP_STATUS = r"HKLM:\SYSTEM\Setup\Status\SysprepStatus"
GENERALISED_BEFORE = 7
LISTENERS = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\WSMAN\Listener"
# The builder's listener, which the bootstrap script made.
LISTENER = LISTENERS + r"\*+HTTPS"
WINRM_PORT = "5986"
# One that has done its work, such as the cloud's custom script.
LEFT_EXTENSION = "CustomScript_1.10.20"
_LISTENER_CERTIFICATE = "3D0C5E5B8C9A4F61A7E2D8B4906F1C7735E2A9D4"


@dataclasses.dataclass(frozen=True)
class Release:
    """The facts of a Windows Server release."""

    build: int
    ubr: int
    update: str


RELEASES = {
    "2019": Release(17763, 8389, "KB5075904"),
    "2022": Release(20348, 5499, "KB5082142"),
    "2025": Release(26100, 33296, "KB5082063"),
    "annual": Release(25398, 1913, "KB5066780"),
}
FEATURES = {
    "Containers": "Available",
    "Hyper-V": "Available",
    "Hyper-V-PowerShell": "Available",
    "RSAT-Hyper-V-Tools": "Available",
    "FS-SMB1": "Removed",
    "NET-Framework-Core": "Removed",
    "NET-Framework-45-Core": "Installed",
    "PowerShell": "Installed",
    "Windows-Defender": "Installed",
    "WoW64-Support": "Installed",
    "Web-Server": "Available",
    "Telnet-Client": "Available",
    "Failover-Clustering": "Available",
}
# Features that only some releases have.
RELEASE_FEATURES = {
    "2019": {"Telnet-Server": "Removed", "PowerShell-V2": "Installed"},
    "2022": {"PowerShell-V2": "Installed", "System-DataArchiver": "Installed"},
    "2025": {"AzureArcSetup": "Installed", "System-DataArchiver": "Installed"},
    "annual": {},
}
NEEDING_RESTART = ("Containers", "Hyper-V", "Failover-Clustering", "Windows-Defender")
TOOLS = (
    "tar.exe", "msiexec.exe", "icacls.exe", "sc.exe", "svchost.exe", "curl.exe", "cmd.exe", "netsh.exe", "shutdown.exe",
    "defrag.exe", "dism.exe", "hostname.exe", "logman.exe", "net.exe", "powercfg.exe", "reg.exe", "tzutil.exe",
    "wevtutil.exe", r"WindowsPowerShell\v1.0\powershell.exe", r"Sysprep\sysprep.exe", r"drivers\tcpip.sys",
    r"drivers\afd.sys", "route.exe", "find.exe",
)  # fmt: skip
PATH = (
    r"%SystemRoot%\system32;%SystemRoot%;%SystemRoot%\System32\Wbem;%SYSTEMROOT%\System32\WindowsPowerShell\v1.0\;"
    "%SYSTEMROOT%\\System32\\OpenSSH\\"
)
FOLDERS = (
    r"C:\Windows\Temp",
    r"C:\Windows\Panther",
    r"C:\Program Files\Common Files",
    r"C:\Program Files (x86)",
    r"C:\ProgramData",
    r"C:\Users",
)
DEFENDER = r"C:\Program Files\Windows Defender\MsMpEng.exe"
# The compiler of .NET for 64-bit programs. Updates and features queue assemblies for it.
COMPILER = r"C:\Windows\Microsoft.NET\Framework64\v4.0.30319\ngen.exe"
TIME_SERVICE = "W32Time"
HOSTED = r"%SystemRoot%\System32\svchost.exe -k netsvcs -p"
# The releases that have the OpenSSH server, switched off.
WITH_SSH = ("2025",)
OPENSSH = SYSTEM32 + r"\OpenSSH"
SERVICES: tuple[StockService, ...] = (
    ("Tcpip", "TCP/IP Protocol Driver", r"System32\drivers\tcpip.sys", BOOT, ()),
    ("Afd", "Ancillary Function Driver for Winsock", r"\SystemRoot\System32\drivers\afd.sys", BOOT, ()),
    ("RpcSs", "Remote Procedure Call (RPC)", HOSTED, AUTOMATIC, ()),
    ("EventLog", "Windows Event Log", HOSTED, AUTOMATIC, ()),
    ("nsi", "Network Store Interface Service", HOSTED, AUTOMATIC, ("RpcSs",)),
    ("Dhcp", "DHCP Client", HOSTED, AUTOMATIC, ("nsi", "Tcpip", "Afd")),
    ("Dnscache", "DNS Client", HOSTED, AUTOMATIC, ("nsi", "Tcpip")),
    ("mpssvc", "Windows Defender Firewall", HOSTED, AUTOMATIC, ()),
    ("ProfSvc", "User Profile Service", HOSTED, AUTOMATIC, ("RpcSs",)),
    ("Schedule", "Task Scheduler", HOSTED, AUTOMATIC, ("RpcSs",)),
    ("winmgmt", "Windows Management Instrumentation", HOSTED, AUTOMATIC, ("RpcSs",)),
    ("LanmanServer", "Server", HOSTED, AUTOMATIC, ()),
    ("LanmanWorkstation", "Workstation", HOSTED, AUTOMATIC, ("nsi",)),
    ("WinRM", "Windows Remote Management (WS-Management)", HOSTED, AUTOMATIC, ("RpcSs",)),
    (WIN_DEFEND, "Microsoft Defender Antivirus Service", f'"{DEFENDER}"', AUTOMATIC, ("RpcSs",)),
    (TIME_SERVICE, "Windows Time", r"%SystemRoot%\system32\svchost.exe -k LocalService", MANUAL, ()),
    ("wuauserv", "Windows Update", HOSTED, MANUAL, ("RpcSs",)),
    ("msiserver", "Windows Installer", r"%SystemRoot%\System32\msiexec.exe /V", MANUAL, ("RpcSs",)),
)


def stock_windows(
    root: Path, *, release: str, cloud: str, defender: bool = True, accounts: Iterable[str] = ()
) -> Machine:
    """A fresh machine, booted once. `release` is a key of RELEASES, `cloud` a provider's name.

    Without `defender` its feature was removed, as hardened base images have it. `accounts` are those of the base image
    beside Windows' own.
    """
    features = {**FEATURES, **RELEASE_FEATURES[release], **({} if defender else {"Windows-Defender": "Available"})}
    machine = Machine(root, features=features, needing_restart=NEEDING_RESTART)
    agents = guest_agents(cloud)
    _fill_disk(machine, agents)
    _fill_registry(machine, release)
    machine.certificates.add(Certificate(_LISTENER_CERTIFICATE))
    for row in table("roots")["stock"].values():
        machine.certificates.add(Certificate(row["thumbprint"]), ROOT)
    machine.firewall.add(Rule("winrm-https", "WinRM over HTTPS", "in", "allow", "TCP", WINRM_PORT))
    for name, display_name, command, start, depends_on in (*SERVICES, *agents.services):
        if defender or name != WIN_DEFEND:
            machine.services.create(name, command, display_name, start, depends_on=depends_on)
    if release in WITH_SSH:
        _add_ssh_server(machine)
    # Outside a domain, Windows stops its time service whenever it starts.
    write_triggers(machine, TIME_SERVICE, (DOMAIN_JOINED, NOT_IN_A_DOMAIN))
    write_time_zone(machine.registry, UTC)
    machine.accounts.rename_user("Administrator", agents.administrator)
    # Windows makes it at the first logon, which is Packer's.
    machine.files.make_folder(rf"C:\Users\{agents.administrator}")
    machine.files.write(rf"C:\Users\{agents.administrator}\NTUSER.DAT", b"regf")
    for name in accounts:
        machine.accounts.add_user(name, secrets.token_hex(16), password_expires=False)
    machine.set_host_name("WIN-0A1B2C3D4E5")
    if agents.state:
        machine.registry.make_key(rf"{agents.state}\{LEFT_EXTENSION}")
    machine.updates.offers = stock_offers(RELEASES[release].ubr)
    machine.restart()
    return machine


def _add_ssh_server(machine: Machine) -> None:
    """What the capability brings: programs, a service that does not start by itself, and a rule."""
    machine.files.make_folder(OPENSSH)
    for name in ("sshd.exe", "ssh-keygen.exe", "sftp-server.exe"):
        machine.files.write(rf"{OPENSSH}\{name}", f"MZ {name} of Windows".encode())
    machine.services.create("sshd", rf"{OPENSSH}\sshd.exe", "OpenSSH SSH Server", MANUAL)
    machine.firewall.add(
        Rule("OpenSSH-Server-In-TCP", "OpenSSH SSH Server (sshd)", "in", "allow", "TCP", "22", profile="Private")
    )


def _fill_disk(machine: Machine, agents: Agents) -> None:
    files = machine.files
    programs = [f"{SYSTEM32}\\{tool}" for tool in TOOLS] + [DEFENDER, COMPILER, *agents.files]
    for folder in (*FOLDERS, *agents.folders, *(program.rpartition("\\")[0] for program in programs)):
        files.make_folder(folder)
    for program in programs:
        files.write(program, f"{program} of a stock Windows".encode())
    for path in agents.leftovers:
        files.make_folder(path.rpartition("\\")[0])
        files.write(path, b"left by an agent of the cloud")
    if agents.answers is not None:
        files.make_folder(parent(agents.answer_file))
        files.write(agents.answer_file, make_answer_file(agents.answers))
    owners = [AccessEntry(sid, "FullControl", inherit=True) for sid in (SYSTEM, ADMINISTRATORS)]
    readers = AccessEntry(USERS, "ReadAndExecute", inherit=True)
    # As on the images of a cloud (pull request 4633 of aks-engine): a folder of the drive that nobody closes is open to
    # every account.
    others = (
        AccessEntry(AUTHENTICATED_USERS, "Modify", inherit=True, propagation=ONLY_BELOW),
        AccessEntry(USERS, CREATE, inherit=True, inheritance=IN_FOLDERS),
    )
    write(files, "C:", [*owners, readers, *others], protected=True)
    for folder in (r"C:\Windows", r"C:\Program Files", r"C:\Program Files (x86)", r"C:\Users"):
        write(files, folder, [*owners, readers], protected=True)
    write(files, r"C:\ProgramData", [*owners, readers, AccessEntry(USERS, "Write", inherit=True)], protected=True)


def _fill_registry(machine: Machine, release: str) -> None:
    facts = RELEASES[release]
    package = f"{SERVICING}\\Packages\\Package_for_RollupFix~31bf3856ad364e35~amd64~~{facts.build}.{facts.ubr}.1.1"
    older = f"{SERVICING}\\Packages\\Package_for_KB4000000~31bf3856ad364e35~amd64~~1.0"
    texts = {
        (CURRENT_VERSION, "ProductName"): Value("String", f"Windows Server {release} Datacenter"),
        (CURRENT_VERSION, "EditionID"): Value("String", "ServerDatacenter"),
        (CURRENT_VERSION, "InstallationType"): Value("String", "Server Core"),
        (CURRENT_VERSION, "CurrentBuildNumber"): Value("String", str(facts.build)),
        (CURRENT_VERSION, "UBR"): Value("DWord", facts.ubr),
        (package, "CurrentState"): Value("DWord", 112),
        (package, "InstallLocation"): Value("String", f"\\\\?\\C:\\Windows\\CbsTemp\\{facts.update}.cab"),
        (older, "CurrentState"): Value("DWord", 80),
        (LISTENER, "certThumbprint"): Value("String", _LISTENER_CERTIFICATE),
        (IMAGE_STATE, "ImageState"): Value("String", "IMAGE_STATE_COMPLETE"),
        (SYSPREP_STATUS, "GeneralizationState"): Value("DWord", GENERALISED_BEFORE),
        (TCPIP, "NV Domain"): Value("String", ""),
        (TCPIP, "Domain"): Value("String", ""),
        (POWER_PLANS, "ActivePowerScheme"): Value("String", BALANCED),
        (ENVIRONMENT, "Path"): Value("ExpandString", PATH),
        (ENVIRONMENT, "ComSpec"): Value("ExpandString", r"%SystemRoot%\system32\cmd.exe"),
        (ENVIRONMENT, "NUMBER_OF_PROCESSORS"): Value("String", "2"),
    }
    for key in (UNINSTALL, UNINSTALL_32):
        machine.registry.make_key(key)
    for (key, name), value in texts.items():
        machine.registry.make_key(key)
        machine.registry.write(key, name, value)
