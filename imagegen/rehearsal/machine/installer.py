r"""Windows Installer: runs msiexec, returns its exit code, and changes files, services and Uninstall keys."""

from __future__ import annotations

import dataclasses
import re
import secrets
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.msi import NotAPackageError, Tables, read_msi
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, DISABLED, MANUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine.accounts import Accounts
    from imagegen.rehearsal.machine.files import Files
    from imagegen.rehearsal.machine.registry import Registry
    from imagegen.rehearsal.machine.services import Services

UNINSTALL = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall"
UNINSTALL_32 = r"HKLM:\SOFTWARE\WOW6432Node\Microsoft\Windows\CurrentVersion\Uninstall"
DONE, FATAL, BUSY, NOT_FOUND, NOT_A_PACKAGE, NO_LOG, NEWER_IS_THERE, BAD_LINE = (
    0,
    1603,
    1618,
    1619,
    1620,
    1622,
    1638,
    1639,
)
STARTS = {"automatic": AUTOMATIC, "manual": MANUAL, "disabled": DISABLED}


@dataclasses.dataclass(frozen=True)
class _Line:
    package: str
    log: str
    properties: dict[str, str]


def _parse(arguments: Sequence[str]) -> _Line | None:
    rest = list(arguments)
    package = log = ""
    properties: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        if word.lower() in ("/i", "/l*v") and rest:
            if word.lower() == "/i":
                package = rest.pop(0)
            else:
                log = rest.pop(0)
        elif match := re.fullmatch(r"([A-Z][A-Z0-9_]*)=(.*)", word, re.DOTALL):
            properties[match[1]] = match[2]
        elif word.lower() not in ("/qn", "/norestart"):
            return None
    return _Line(package, log, properties) if package else None


class Installer:
    """Runs one installation at a time. `busy_for_s` is how long another installation still runs."""

    def __init__(self, files: Files, registry: Registry, services: Services, accounts: Accounts) -> None:
        self._files = files
        self._registry = registry
        self._services = services
        self._accounts = accounts
        self.busy_for_s = 0

    def wait(self, seconds: int) -> None:
        """Let time pass for the other installation."""
        self.busy_for_s = max(0, self.busy_for_s - seconds)

    def msiexec(self, arguments: Sequence[str]) -> int:
        line = _parse(arguments)
        if line is None:
            return BAD_LINE
        if self.busy_for_s:
            return BUSY
        if line.log:
            if not self._files.is_folder(parent(line.log)):
                return NO_LOG
            self._files.write(line.log, f"msiexec {' '.join(arguments)}\r\n".encode())
        if not self._files.is_file(line.package):
            return NOT_FOUND
        try:
            tables, files = read_msi(self._files.read(line.package))
        except NotAPackageError:
            return NOT_A_PACKAGE
        try:
            return self._install(tables, files, line.properties)
        except RefusedByWindows as refusal:
            if line.log:
                self._files.write(line.log, self._files.read(line.log) + f"{refusal}\r\n".encode())
            return FATAL

    def _install(self, tables: Tables, files: dict[str, bytes], properties: dict[str, str]) -> int:
        registered = self._registered(tables.product)
        repairs = properties.get("REINSTALL", "").upper() == "ALL"
        if tables.version in registered.values() and not repairs:
            return DONE  # an installed product is only reconfigured, and no change was requested
        if any(_numbers(version) > _numbers(tables.version) for version in registered.values()):
            return NEWER_IS_THERE
        if not registered and repairs:
            return DONE  # there is nothing to reinstall
        self._copy(tables, files, properties)
        for key in registered:
            self._registry.remove_key(key)
        self._register(tables)
        return DONE

    def _registered(self, product: str) -> dict[str, str]:
        keys = [f"{root}\\{name}" for root in (UNINSTALL, UNINSTALL_32) for name in self._registry.subkeys(root)]
        return {
            key: self._registry.text(key, "DisplayVersion") or ""
            for key in keys
            if self._registry.text(key, "DisplayName") == product
        }

    def _copy(self, tables: Tables, files: dict[str, bytes], properties: dict[str, str]) -> None:
        for service in tables.services:
            if self._services.exists(service.name):
                self._services.remove(service.name)
        for folder in tables.folders:
            self._files.make_folder(folder)
        for path, data in files.items():
            self._files.make_folder(parent(path))
            self._files.write(path, data)
        for service in tables.services:
            self._services.create(service.name, service.command, service.display_name, STARTS[service.start])
            if account := service.account(properties):
                self._make_administrator(account)
                self._services.configure(service.name, "ObjectName", Value("String", f".\\{account}"))
            if service.starts:
                self._services.start(service.name)

    def _make_administrator(self, name: str) -> None:
        """Make an account with a password that nobody is told, if there is none of this name."""
        if self._accounts.user(name) is None:
            self._accounts.add_user(name, secrets.token_hex(16), password_expires=False)
            self._accounts.add_member("Administrators", name)

    def _register(self, tables: Tables) -> None:
        code = uuid.uuid5(uuid.NAMESPACE_OID, f"{tables.product} {tables.version}")
        key = f"{UNINSTALL}\\{{{str(code).upper()}}}"
        self._registry.make_key(key)
        self._registry.write(key, "DisplayName", Value("String", tables.product))
        self._registry.write(key, "DisplayVersion", Value("String", tables.version))
        self._registry.write(key, "WindowsInstaller", Value("DWord", 1))


def _numbers(version: str) -> tuple[int, ...]:
    # Windows Installer compares the first three fields.
    return tuple(int(field) for field in version.split(".")[:3] if field.isdigit())
