r"""Installs the stand-in of an MSI package: its files, folders, services, account and registration."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.msi import NotAPackageError, read_msi
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.machine.registry import Registry
    from imagegen.rehearsal.machine.windows import Machine

UNINSTALL = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall"
UNINSTALL_32 = r"HKLM:\SOFTWARE\WOW6432Node\Microsoft\Windows\CurrentVersion\Uninstall"
STARTS = {"automatic": AUTOMATIC, "manual": MANUAL, "disabled": DISABLED}


def find_version(registry: Registry, product: str) -> str | None:
    """The version of an installed product."""
    keys = [rf"{root}\{name}" for root in (UNINSTALL, UNINSTALL_32) for name in registry.subkeys(root)]
    found = (key for key in keys if registry.text(key, "DisplayName") == product)
    return next((registry.text(key, "DisplayVersion") or "" for key in found), None)


def install(machine: Machine, package: bytes, properties: Mapping[str, str]) -> None:
    """Install a package with these public properties."""
    try:
        tables, files = read_msi(package)
    except NotAPackageError as error:
        raise RefusedByWindows(f"msiexec ended with 1620: {error}") from error
    for folder in tables.folders:
        machine.files.make_folder(folder)
    for path, data in files.items():
        machine.files.make_folder(parent(path))
        machine.files.write(path, data)
    for service in tables.services:
        machine.services.create(service.name, service.command, service.display_name, STARTS[service.start])
        if account := service.account(properties):
            # With a password that nobody is told.
            machine.accounts.add_user(account, secrets.token_hex(16), password_expires=False)
            machine.accounts.add_member("Administrators", account)
            machine.services.configure(service.name, "ObjectName", Value("String", f".\\{account}"))
        if service.starts:
            machine.services.start(service.name)
    code = uuid.uuid5(uuid.NAMESPACE_OID, f"{tables.product} {tables.version}")
    key = f"{UNINSTALL}\\{{{str(code).upper()}}}"
    machine.registry.make_key(key)
    machine.registry.write(key, "DisplayName", Value("String", tables.product))
    machine.registry.write(key, "DisplayVersion", Value("String", tables.version))
