r"""The OpenSSH server: whom it lets in.

From Win32-OpenSSH (auth2-pubkey.c, w32-sshfileperm.c): it reads no file with keys that others than the user, SYSTEM and
administrators can change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, effective
from imagegen.rehearsal.machine.sshd import read_settings

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.accounts import User
    from imagegen.rehearsal.machine.windows import Machine

SERVICE: Final = "sshd"


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
