"""Looks at the SSH server of a booted model machine: what the config wants, and what is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.rehearsal.machine.programs import check_can_run
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.ssh_server import SERVICE, find_keys_file, logs_in
from imagegen.rehearsal.machine.sshd import HOST_KEYS, Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.settle.spec import Spec

# The plugin of cloudbase-init that writes the keys of the metadata.
KEYS_PLUGIN: Final = "SetUserSSHPublicKeysPlugin"
_SHELLS: Final = {
    "powershell": r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe",
    "cmd": r"C:\Windows\System32\cmd.exe",
}


@dataclasses.dataclass(frozen=True)
class WantedSsh:
    """What the config wants of the SSH server."""

    port: int
    shell: str


def describe_ssh(spec: Spec) -> WantedSsh | None:
    """None if the config has no SSH server."""
    ssh = spec.config.ssh
    return WantedSsh(ssh.port, _SHELLS[ssh.shell]) if ssh else None


def look_at_ssh(machine: Machine, image: Machine, wanted: WantedSsh | None, keys: Collection[str]) -> facts.Ssh | None:
    """`keys` are those that cloudbase-init should write."""
    if wanted is None:
        return None
    command, failure = machine.services.command(SERVICE), ""
    settings: Settings | None = None
    try:
        check_can_run(machine.files, machine.features, command)
        settings = read_settings(machine.files)
    except RefusedByWindows as refusal:
        failure = str(refusal) if command else "its service is not in the image"
    users = [user for user in machine.accounts.users if user.enabled]
    is_running = machine.services.is_running(SERVICE) and settings is not None
    return facts.Ssh(
        is_running=is_running,
        failure=failure,
        port=settings.port if settings else 0,
        wanted_port=wanted.port,
        is_reached=settings is not None and machine.firewall.lets_in(settings.port),
        accepts_passwords=settings is not None and settings.accepts_passwords,
        keys_files=tuple(dict.fromkeys(find_keys_file(machine, user) for user in users)) if settings else (),
        has_key=bool(keys),
        logs_in=is_running and any(logs_in(machine, user, key) for user in users for key in keys),
        host_keys=sum(machine.files.is_file(path) for path in HOST_KEYS),
        keys_of_image=tuple(path for path in HOST_KEYS if image.files.is_file(path)),
        shell=machine.registry.text(r"HKLM:\SOFTWARE\OpenSSH", "DefaultShell") or "",
        wanted_shell=wanted.shell,
    )
