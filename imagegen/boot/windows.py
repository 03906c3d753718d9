"""What must be so about Windows on a node: its settings, updates, Hyper-V, and the servers that the config adds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.cloudbase_init import read_text
from imagegen.boot.guarded import layout_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.boot.node import Finding, Node
    from imagegen.settle.spec import Spec

_HIGH_PERFORMANCE: Final = "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c"
_POWER: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes"
_ZONE: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\TimeZoneInformation"
_TCPIP: Final = r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"
_TIME_SERVICE: Final = "W32Time"
_HYPER_V_SERVICE: Final = "vmms"
# The programs of a node that open the most files, by the name of their folder.
_PROGRAMS: Final = (
    ("kubernetes", "kubelet.exe"),
    ("containerd", "containerd.exe"),
    ("containerd", "containerd-shim-runhcs-v1.exe"),
)
_PROGRAMS_WITH_DOCKER: Final = (("kubernetes", "kubelet.exe"), ("docker", "dockerd.exe"))
_SHELLS: Final = {
    "powershell": r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe",
    "cmd": r"C:\Windows\System32\cmd.exe",
}
_SSH_FOLDER: Final = r"C:\ProgramData\ssh"
_HOST_KEY: Final = re.compile(r"(?i)\\ssh_host_[a-z0-9]+_key$")
_GMSA_CLASS: Final = "{CCC2A336-D7F3-4818-A213-272B7924213E}"
_GMSA_LIST: Final = r"HKLM:\SYSTEM\CurrentControlSet\Control\CCG\COMClasses"
_GMSA_SERVER: Final = rf"HKLM:\SOFTWARE\Classes\CLSID\{_GMSA_CLASS}\InprocServer32"


def _time_zone(node: Node) -> Iterator[Finding]:
    wanted = node.spec.config.windows.time_zone
    found = str(node.value(_ZONE, "TimeZoneKeyName") or "")
    found += "_dstoff" if node.value(_ZONE, "DynamicDaylightTimeDisabled") else ""
    if found != wanted:
        yield say(f"the time zone is {found}, and the config has {wanted}")


def _dns_suffix(node: Node) -> Iterator[Finding]:
    wanted, found = node.spec.config.host_names.dns_suffix or "", str(node.value(_TCPIP, "Domain") or "")
    if found.lower() != wanted.lower():
        yield say(f"the DNS suffix is '{found}', and the config has {wanted}")


def _power(node: Node) -> Iterator[Finding]:
    found = str(node.value(_POWER, "ActivePowerScheme") or "").lower()
    if found != _HIGH_PERFORMANCE:
        yield say(f"the power plan is {found or 'unknown'}, not high performance")


def _time_service(node: Node) -> Iterator[Finding]:
    service = node.service(_TIME_SERVICE)
    if not service or not service.is_running:
        yield say("the time service does not run, so the clock drifts and certificates seem invalid")


def _ports(node: Node) -> Iterator[Finding]:
    facts = node.spec.facts
    excluded = (*facts.excluded_ports, *(facts.excluded_ports_on_cloud or ()))
    taken = [sum(rows.count for rows in excluded if rows.protocol == protocol) for protocol in ("tcp", "udp")]
    least = facts.dynamic_ports.count - max(taken)
    for protocol in ("tcp", "udp"):
        if (count := len(node.ports(protocol))) < least:
            yield say(f"programs can get {count} {protocol} ports, and need {least}")
    for rows in excluded:
        if not node.ports(rows.protocol).isdisjoint(range(rows.start, rows.end + 1)):
            yield say(f"a program can get the ports {rows}")


def _defender(node: Node) -> Iterator[Finding]:
    excluded = node.unscanned()
    if excluded is None:
        return
    layout = layout_of(node.spec)
    programs = _PROGRAMS_WITH_DOCKER if node.spec.config.runtime.docker else _PROGRAMS
    paths = [rf"{layout[folder]}\{name}" for folder, name in programs]
    if scanned := [path for path in paths if path.lower() not in excluded]:
        yield say(f"Defender scans the files that {some(scanned)} opens")


def _updates(node: Node) -> Iterator[Finding]:
    wanted, found = node.spec.config.windows.updates, node.updates()
    if wanted is None:
        return
    missing = [
        str(row["kb"])
        for row in node.spec.facts.updates.kbs
        if str(row["kb"]) not in found.installed and not (isinstance(row["ubr"], int) and row["ubr"] <= found.revision)
    ]
    if missing:
        yield say(f"Windows has not the updates {some(missing)}")
    if offered := [kb for kb in found.offered if kb not in wanted.exclude]:
        yield say(f"Windows Update still offers {some(offered)}")
    if found.waits_for_restart:
        yield say("an update waits for a restart")
    if found.proxy:
        yield say(f"WinHTTP still has the proxy of the build: {found.proxy}")


def _hyper_v(node: Node) -> Iterator[Finding]:
    service = node.service(_HYPER_V_SERVICE)
    if not service or not service.is_running:
        yield say("the service of Hyper-V does not run", "N13")
    if not node.has_feature("Hyper-V-PowerShell"):
        yield say("PowerShell has no commands of Hyper-V", "N13")
    isolates = node.spec.config.windows.hyper_v == "isolation"
    if isolates and not node.runs_hypervisor():
        yield say("the hypervisor does not run, so no pod can be isolated", "N13")
    elif node.runs_hypervisor() and not isolates:
        yield say("the hypervisor runs, and the config has only the tools", "N13")


def _gmsa(node: Node) -> Iterator[Finding]:
    if _GMSA_CLASS.lower() not in map(str.lower, node.subkeys(_GMSA_LIST)):
        yield say("Windows does not load the plugin of gMSAs: its class is not below Control\\CCG\\COMClasses")
    dll = str(node.value(_GMSA_SERVER, "") or "")
    if not dll:
        yield say("the class of the plugin of gMSAs is not registered")
    elif node.read(dll) is None:
        yield say(f"the plugin of gMSAs is registered as {dll}, which is missing")


def _ssh(node: Node) -> Iterator[Finding]:
    wanted, service = node.spec.config.ssh, node.service("sshd")
    if wanted is None:
        return
    if not service or not service.is_running or service.failure:
        yield say(f"sshd does not run{f': {service.failure}' if service and service.failure else ''}")
        return
    settings: dict[str, str] = {}
    for line in _first_lines(node):
        keyword, _, value = line.strip().lower().partition(" ")
        settings.setdefault(keyword, value.strip())
    port = settings.get("port", "22")
    if port != str(wanted.port):
        yield say(f"sshd listens on port {port}, and the config has {wanted.port}")
    elif not node.lets_in(wanted.port):
        yield say(f"Windows' firewall blocks port {port} of sshd")
    if settings.get("passwordauthentication", "yes") != "no":
        yield say("sshd accepts passwords")
    keys = [path for path in node.below(_SSH_FOLDER) if _HOST_KEY.search(path)]
    if not keys:
        yield say("sshd has no key of the host")
    if shared := [path for path in keys if node.was_in_image(path)]:
        yield say(f"every node has the same key of the host: the image has {some(shared)}")
    shell = str(node.value(r"HKLM:\SOFTWARE\OpenSSH", "DefaultShell") or "")
    if shell.lower() != _SHELLS[wanted.shell].lower():
        yield say(f"an SSH session starts {shell or 'no program'}, and the config has {_SHELLS[wanted.shell]}")


def _first_lines(node: Node) -> list[str]:
    """The lines of sshd's configuration that apply to everybody: the first value of a keyword counts."""
    text = read_text(node, rf"{_SSH_FOLDER}\sshd_config")
    return re.split(r"(?mi)^[ \t]*match[ \t]", text, maxsplit=1)[0].splitlines()


def _has_gmsa(spec: Spec) -> bool:
    return spec.config.gmsa is not None and spec.facts.gmsa_plugin is not None


CHECKS: Final = (
    Check("time-zone", "the time zone is the config's", _time_zone, lambda spec: bool(spec.config.windows.time_zone)),
    Check(
        "dns-suffix",
        "the DNS suffix is the config's",
        _dns_suffix,
        lambda spec: bool(spec.config.host_names.dns_suffix),
    ),
    Check("power", "the power plan is high performance", _power),
    Check("time-service", "the time service runs", _time_service),
    Check("ports", "programs have enough ports, and none that is reserved", _ports),
    Check("defender", "Defender does not scan what kubelet and the container runtime open", _defender),
    Check(
        "updates",
        "Windows has the updates of the config",
        _updates,
        lambda spec: spec.config.windows.updates is not None,
    ),
    Check(
        "hyper-v",
        "Hyper-V is there as the config has it",
        _hyper_v,
        lambda spec: spec.config.windows.hyper_v != "none",
    ),
    Check("gmsa", "the plugin of gMSAs is registered", _gmsa, _has_gmsa),
    Check(
        "ssh",
        "sshd runs on its port, accepts no password, and has keys of its own",
        _ssh,
        lambda spec: spec.config.ssh is not None,
    ),
)
