"""The state of a booted model machine that a second boot must leave as it is."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from imagegen.boot.cloudbase_init import SERVICE, USER_DATA_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.rehearsal.machine.windows import Machine

_FOLDERS_OF_KEYS: Final = (r"C:\Users", r"C:\ProgramData\ssh")
# The SSH keys of accounts, and of administrators.
_KEYS: Final = re.compile(r"(?i)\\\.?ssh\\")


def take_snapshot(machine: Machine, folders: Iterable[str]) -> dict[str, str]:
    """Accounts, groups, certificates, SSH keys, the name, what user data wrote and what is in `folders`."""
    # cloudbase-init gives the account of its service a new password at every start.
    own = (machine.registry.text(machine.services.key(SERVICE), "ObjectName") or "").rpartition("\\")[2].lower()
    values = {"the host name": machine.host_name}
    for user in machine.accounts.users:
        password = "" if user.name.lower() == own else user.password
        values[f"account {user.name}"] = f"{user.number} {user.enabled} {password}"
    for group in machine.accounts.groups:
        values[f"group {group.name}"] = " ".join(map(str, sorted(group.members)))
    for store in machine.certificates:
        values[f"the certificates in {store}"] = " ".join(sorted(machine.certificates.thumbprints(store)))
    keys = (path for folder in _FOLDERS_OF_KEYS for path in _below(machine, folder) if _KEYS.search(path))
    written = (path for folder in (USER_DATA_FOLDER, *folders) for path in _below(machine, folder))
    for path in itertools.chain(keys, written):
        values[path] = machine.files.read(path).hex()
    return values


def find_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def _below(machine: Machine, folder: str) -> list[str]:
    return list(machine.files.below(folder)) if machine.files.is_folder(folder) else []
