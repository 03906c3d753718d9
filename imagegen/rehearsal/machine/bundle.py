r"""Does what start.ps1 does: verifies the uploaded zip and unpacks it.

The folder is C:\ProgramData\imagegen, or for -Check one of its own, which is removed at the end or by a later -Check.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, AccessEntry, write
from imagegen.rehearsal.machine.plan import Plan, read_plan
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import check_script
from imagegen.rehearsal.machine.stop import Exit, StopError

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.arguments import EntryArguments
    from imagegen.rehearsal.machine.windows import Machine

HOME = r"C:\ProgramData\imagegen"
UNPACKED = HOME + r"\bundle"
TEMP = r"C:\Windows\Temp"
CHECK_HOME = r"C:\Windows\imagegen-check"
COMMON = UNPACKED + r"\common.psm1"
PLAN = "plan.json"
# No part that Windows would read as another name.
ENTRY_NAME = re.compile(r"([A-Za-z0-9._-]*[A-Za-z0-9_-]/)*[A-Za-z0-9._-]*[A-Za-z0-9_-]")
ENGINE = ("engine.psm1", "common.psm1", "download.psm1")


def root_for(arguments: EntryArguments) -> str:
    """The folder for the bundle. That of -Check is where only administrators can prepare anything."""
    return CHECK_HOME if arguments.check else HOME


def open_bundle(machine: Machine, arguments: EntryArguments, root: str) -> Plan:
    """Verify the bundle, unpack it below `root`, and return its plan."""
    if not machine.files.is_file(arguments.bundle):
        raise StopError(Exit.ARGUMENTS, f"-Bundle: there is no file {arguments.bundle}")
    if arguments.check and machine.files.exists(root):
        # A killed -Check left it. No other one is active on this machine.
        machine.files.remove(root)
    _make_root(machine, root)
    data = machine.files.read(arguments.bundle)
    _compare("the bundle", data, arguments.bundle_sha256)
    contents = _unzip(data)
    if PLAN not in contents:
        raise StopError(Exit.WRONG_BYTES, f"the bundle has no {PLAN}")
    _compare(PLAN, contents[PLAN], arguments.plan_sha256)
    plan = read_plan(contents[PLAN])
    _check_contents(plan, contents)
    _unpack(machine, contents, root)
    for name in _loaded(plan):
        check_script(machine, rf"{root}\bundle\{name}".replace("/", "\\"))
    return plan


def _loaded(plan: Plan) -> tuple[str, ...]:
    """The scripts that the engine imports or runs when it starts."""
    kinds = {entry.kind for phase in plan.phases for step in phase.steps for entry in step.resources}
    return (*ENGINE, *(f"kinds/{kind}.ps1" for kind in sorted(kinds)))


def _compare(what: str, data: bytes, expected: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise StopError(Exit.WRONG_BYTES, f"the sha256 of {what} is {found}, expected {expected}")


def _unzip(data: bytes) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                name = entry.filename
                if not ENTRY_NAME.fullmatch(name.removesuffix("/")):
                    raise StopError(Exit.WRONG_BYTES, f"the bundle has a file with the invalid name '{name}'")
                if entry.is_dir():
                    continue
                if name.lower() in map(str.lower, contents):
                    raise StopError(Exit.WRONG_BYTES, f"the bundle has '{name}' twice")
                contents[name] = archive.read(entry)
    except zipfile.BadZipFile as error:
        raise StopError(Exit.WRONG_BYTES, f"the bundle is not a zip: {error}") from error
    return contents


def _check_contents(plan: Plan, contents: dict[str, bytes]) -> None:
    for name, digest in plan.files.items():
        if name not in contents:
            raise StopError(Exit.WRONG_BYTES, f"the bundle does not have {name}")
        _compare(name, contents[name], digest)
    for name in contents:
        if name != PLAN and name not in plan.files:
            raise StopError(Exit.WRONG_BYTES, f"the bundle has {name}, but the plan does not list it")
    for name in _loaded(plan):
        if name not in plan.files:
            raise StopError(Exit.FAULT, f"the engine cannot load {name}: the bundle does not have it")


def _make_root(machine: Machine, root: str) -> None:
    machine.files.make_folder(root)
    machine.need_tool("icacls.exe")
    owners = [AccessEntry(sid, "FullControl", inherit=True) for sid in (SYSTEM, ADMINISTRATORS)]
    write(machine.files, root, owners, protected=True)


def _unpack(machine: Machine, contents: dict[str, bytes], root: str) -> None:
    folder = rf"{root}\bundle"
    if machine.files.exists(folder):
        machine.files.remove(folder)
    for name, data in contents.items():
        path = f"{folder}\\{name}".replace("/", "\\")
        machine.files.make_folder(path.rpartition("\\")[0])
        machine.files.write(path, data)


def need_common(machine: Machine) -> None:
    """Scripts of the steps that run only during a build import the bundle's module."""
    if not machine.files.is_file(COMMON):
        raise RefusedByWindows(f"failed: there is no module {COMMON}")
    check_script(machine, COMMON)
