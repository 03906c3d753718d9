"""The effect of first-boot.ps1 on the model machine. The model was compared with the bytes of one digest only."""

from __future__ import annotations

import hashlib
import ntpath
import re
import secrets
from typing import TYPE_CHECKING

from imagegen.base.contents import SHIPPED
from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.restricted_address import restrict_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imagegen.base.contents import Contents
    from imagegen.rehearsal.boot.model import Process, Program
    from imagegen.rehearsal.machine.windows import Machine

    Part = Callable[[Machine, str], Iterable[str]]

_SCRIPT = "cloudbase-init/files/first-boot.ps1"
# Compare the functions below with a changed script before you take over its digest.
SHA256 = "bdb488279ab21d1733f50f6741f4db479a8b2e6790503e0ef320fbd024c95b99"
BUILDER_PORT = "5986"
CLOSED_ACCOUNT = "imagegen-builder"


def first_boot_scripts(contents: Contents = SHIPPED) -> dict[bytes, Program]:
    """The script as it is shipped. A script with other bytes is interpreted, and refused where that is not possible."""
    paths = [root.folder / _SCRIPT for root in contents.step_roots]
    shipped = [path.read_bytes() for path in paths if path.is_file()]
    return {data: run_first_boot if _is_known(data) else _refuse for data in shipped}


def _is_known(data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == SHA256


def _refuse(process: Process) -> Ended:
    raise UnknownCommandError(f"{process.arguments[0]} is not the script that the rehearsal has a model of")


def run_first_boot(process: Process) -> Ended:
    """Every part runs, even if another one failed. Each failure is a line, and the exit code is then 1."""
    folder = ntpath.dirname(process.arguments[0])
    reasons: list[str] = []
    for part in PARTS.values():
        try:
            # One by one: what a part did before it failed is told too.
            reasons.extend(part(process.machine, folder))
        except RefusedByWindows as refusal:
            reasons.append(str(refusal))
    return Ended(int(bool(reasons)), "".join(f"failed: {reason}\r\n" for reason in reasons))


def _remove_rules(machine: Machine, _folder: str) -> list[str]:
    if not machine.services.is_running("mpssvc"):
        raise RefusedByWindows("the firewall does not answer: service mpssvc is not running")
    for rule in machine.firewall.rules:
        if (rule.direction, rule.protocol, rule.port) == ("in", "TCP", BUILDER_PORT):
            machine.firewall.remove(rule.name)
    return []


def _remove_certificates(machine: Machine, folder: str) -> list[str]:
    prints = _take_list(machine, rf"{folder}\certificates.txt")
    for one in prints:
        if re.fullmatch(r"[0-9A-Fa-f]{40}", one):
            machine.certificates.remove(one)
    return []


def _close_accounts(machine: Machine, folder: str) -> list[str]:
    reasons: list[str] = []
    path = rf"{folder}\accounts.txt"
    numbers = _read_list(machine, path)
    for user in machine.accounts.users:
        if str(user.number) not in numbers:
            continue
        user.enabled, user.password = False, secrets.token_hex(32)
        profile = rf"C:\Users\{user.name}"
        if machine.files.is_folder(profile):
            machine.files.remove(profile)
        try:
            machine.accounts.rename_user(user.name, CLOSED_ACCOUNT)
        except RefusedByWindows as refusal:
            reasons.append(f"account {user.name} could not be renamed: {refusal}")
    if not reasons and machine.files.is_file(path):
        machine.files.remove(path)
    return reasons


def _read_list(machine: Machine, path: str) -> list[str]:
    """The lines of a file. As .NET reads them, bytes that are no UTF-8 fail nothing."""
    return machine.files.read(path).decode("utf-8-sig", "replace").splitlines() if machine.files.is_file(path) else []


def _take_list(machine: Machine, path: str) -> list[str]:
    """The lines of a file, which is then deleted."""
    lines = _read_list(machine, path)
    if machine.files.is_file(path):
        machine.files.remove(path)
    return lines


# By the function of the script that does it, in the script's order.
PARTS: Mapping[str, Part] = {
    "Clear-BuilderRule": _remove_rules,
    "Clear-BuilderCertificate": _remove_certificates,
    "Close-BuilderAccount": _close_accounts,
    "Limit-Address": lambda machine, _: restrict_address(machine),
}
