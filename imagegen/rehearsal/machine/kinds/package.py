"""An installed MSI package on the model machine, with its files and services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.installer import BUSY, DONE, UNINSTALL, UNINSTALL_32
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.signatures import check_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Package

RESTART_DUE = 3010
BETWEEN_TRIES_S = 5
# msiexec /i does not repair an installed product. A lost file comes back only with REINSTALL.
REPAIR = ("REINSTALL=ALL", "REINSTALLMODE=amus")


def _matches(version: str, wanted: Package) -> bool:
    return version == wanted.version or version.startswith(wanted.version + ".")


def _version(machine: Machine, wanted: Package) -> str | None:
    """The registered version. Of several registrations, the matching one counts, or else the last."""
    found: str | None = None
    for root in (UNINSTALL, UNINSTALL_32):
        for name in machine.registry.subkeys(root):
            key = f"{root}\\{name}"
            fits = found is not None and _matches(found, wanted)
            if machine.registry.text(key, "DisplayName") == wanted.product and not fits:
                found = machine.registry.text(key, "DisplayVersion") or ""
    return found


def get(machine: Machine, wanted: Package) -> Facts | None:
    version = _version(machine, wanted)
    if version is None:
        return None
    return {
        "product": wanted.product,
        "version": version,
        "files": {path: machine.files.is_file(path) for path in wanted.files},
        "services": {name: machine.services.exists(name) for name in wanted.services},
    }


def test(_machine: Machine, wanted: Package, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"{wanted.product} is not installed"]
    reasons = []
    if not _matches(facts["version"], wanted):
        reasons.append(f"version is {facts['version']}, not {wanted.version}")
    reasons += [f"there is no file {path}" for path, there in facts["files"].items() if not there]
    reasons += [f"there is no service {name}" for name, there in facts["services"].items() if not there]
    return reasons


def put(machine: Machine, wanted: Package, supplies: Supplies) -> bool:
    machine.need_tool("msiexec.exe")
    check_signature(machine, machine.files.read(supplies.need_artifact()), f"{wanted.artifact}.msi", supplies)
    version = _version(machine, wanted)
    repair = REPAIR if version is not None and _matches(version, wanted) else ()
    log = f"{supplies.logs}\\{wanted.artifact}.msi.log"
    line = ["/i", supplies.need_artifact(), "/qn", "/norestart", "/l*v", log, *repair, *wanted.arguments]
    left_s = supplies.timeout_s
    while (code := machine.installer.msiexec(line)) == BUSY and left_s > 0:
        machine.installer.wait(BETWEEN_TRIES_S)
        left_s -= BETWEEN_TRIES_S
    if code not in (DONE, RESTART_DUE):
        raise RefusedByWindows(f"msiexec ended with {code}")
    return code == RESTART_DUE
