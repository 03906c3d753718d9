r"""The OpenSSH server: how Windows adds it, and whom it lets in.

From Win32-OpenSSH (auth2-pubkey.c, w32-sshfileperm.c): it reads no file with keys that others than the user, SYSTEM and
administrators can change."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, effective
from imagegen.rehearsal.machine.bundle import need_common
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.sshd import read_settings
from imagegen.trust.block import without_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.accounts import User
    from imagegen.rehearsal.machine.windows import Machine

SERVICE: Final = "sshd"
OF_WINDOWS: Final = r"C:\Windows\System32\OpenSSH"
# The releases that have the server, switched off.
WITH_SERVER: Final = ("2025",)
# Compare the functions below with a changed script before you take over its digest.
ADD_SERVER_SHA256: Final = "b0ae31df8e2debfe8c0b331ce70c524beca875774ffc4f0aa018f0baf5eb6e69"


def run_add_script(machine: Machine, script: str, *, show: bool) -> str:
    """What add-ssh-server.ps1 prints."""
    if not machine.files.is_file(script):
        raise RefusedByWindows(f"powershell.exe cannot find its script {script}")
    if hashlib.sha256(without_signature(machine.files.read(script))).hexdigest() != ADD_SERVER_SHA256:
        raise UnknownCommandError(f"{script} is not the script that the rehearsal has a model of")
    if show:
        has_program = machine.files.is_file(rf"{OF_WINDOWS}\sshd.exe")
        return f"installed={has_program and machine.services.exists(SERVICE)}\r\n"
    need_common(machine)
    if not machine.services.is_running("Schedule"):
        raise RefusedByWindows("failed: the task scheduler does not run")
    add_server(machine)
    return ""


def add_server(machine: Machine) -> None:
    """What the capability brings: programs, a service that does not start by itself, and a rule."""
    for name in ("sshd.exe", "ssh-keygen.exe", "sftp-server.exe"):
        machine.files.make_folder(OF_WINDOWS)
        machine.files.write(rf"{OF_WINDOWS}\{name}", f"MZ {name} of Windows".encode())
    if not machine.services.exists(SERVICE):
        machine.services.create(SERVICE, rf"{OF_WINDOWS}\sshd.exe", "OpenSSH SSH Server", MANUAL)
    if machine.firewall.rule("OpenSSH-Server-In-TCP") is None:
        machine.firewall.add(
            Rule("OpenSSH-Server-In-TCP", "OpenSSH SSH Server (sshd)", "in", "allow", "TCP", "22", profile="Private")
        )


def logs_in(machine: Machine, user: User, key: str) -> bool:
    """Whether sshd lets a user in who has this key."""
    settings = read_settings(machine.files)
    if settings.get("pubkeyauthentication", "yes").lower() != "yes" or not user.enabled:
        return False
    path = find_keys_file(machine, user)
    if not machine.files.is_file(path) or _is_open(machine, path, user):
        return False
    return key.split()[1] in machine.files.read(path).decode("utf-8", "replace").split()


def find_keys_file(machine: Machine, user: User) -> str:
    """The file in which sshd looks for the keys of a user."""
    groups = (group.name.lower() for group in machine.accounts.groups_of(user))
    return read_settings(machine.files).keys_file(user.name, administrator="administrators" in groups)


def _is_open(machine: Machine, path: str, user: User) -> bool:
    trusted = {SYSTEM, ADMINISTRATORS, machine.accounts.sid(user)}
    changes = ("Write", "Modify", "FullControl")
    entries = effective(machine.files, path).entries
    return any(not entry.deny and entry.sid not in trusted and entry.rights in changes for entry in entries)
