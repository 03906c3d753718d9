"""What the cloud's generalise script and logs.ps1 leave and say, taken as run: the state of a sealed machine, and the
zip of its logs."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import io
import re
import zipfile
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.clouds import guest_agents
from imagegen.rehearsal.machine.engine import REPORT, Outcome, find_differences
from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.plan import HOME, items_of, read_plan
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.machine.stock import GENERALISED_BEFORE, IMAGE_STATE, LISTENERS, SYSPREP_STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.machine.agents import Agents
    from imagegen.rehearsal.machine.windows import Machine

CACHED_ANSWERS: Final = r"C:\Windows\Panther\unattend.xml"
ANSWER_FILES: Final = (
    CACHED_ANSWERS,
    r"C:\Windows\Panther\Unattend\unattend.xml",
    r"C:\Windows\System32\Sysprep\unattend.xml",
)
SETUP_SCRIPTS: Final = r"C:\Windows\Setup\Scripts"
SEALED: Final = "IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE"
# The one file in the engine's folder that stays.
_RECORD: Final = rf"{HOME}\manifest.json"
_USERS: Final = r"C:\Users"
_EMPTIED: Final = (r"C:\Windows\Temp", r"C:\Windows\Logs")
_BUILDER_TASK: Final = r"(packer-.+|imagegen-(add-ssh-server|updates))"
# The folder in the zip, and the folder on the machine.
_LOGS: Final = (
    ("imagegen", HOME),
    ("dism", r"C:\Windows\Logs\DISM"),
    ("sysprep", r"C:\Windows\System32\Sysprep\Panther"),
    ("containerd", r"C:\var\log\containerd"),
    ("kubelet", r"C:\var\log\kubelet"),
    ("cloudbase-init", r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log"),
)
_LINE_LENGTH: Final = 900


def generalise(machine: Machine, *, cloud: str) -> Outcome:
    """`cloud` is a provider's name."""
    agents = guest_agents(cloud)
    try:
        _check_ready(machine)
        agents.check(machine)
        if agents.reset is not None:
            agents.reset(machine)
        _seal(machine, agents)
    except RefusedByWindows as refusal:
        return Outcome(1, f"failed: {refusal}\n")
    return Outcome(0, "")


def _check_ready(machine: Machine) -> None:
    services = machine.services
    if not machine.files.is_file(REPORT):
        raise RefusedByWindows("there is no report.json: the last phase has not finished")
    if machine.restart_pending():
        raise RefusedByWindows("Windows has a restart pending")
    if not services.exists("cloudbase-init") or services.start_type("cloudbase-init") != MANUAL:
        raise RefusedByWindows("service cloudbase-init must exist with start type manual")
    if services.is_running("cloudbase-init"):
        raise RefusedByWindows("service cloudbase-init is running, not Stopped")
    if machine.registry.number(SYSPREP_STATUS, "GeneralizationState") != GENERALISED_BEFORE:
        raise RefusedByWindows("the machine is not generalised after 600 s: its state is 'IMAGE_STATE_COMPLETE'")


def _seal(machine: Machine, agents: Agents) -> None:
    for name in machine.tasks.names():
        if re.fullmatch(_BUILDER_TASK, name, re.IGNORECASE):
            machine.tasks.unregister(name)
    answers = machine.files.read(agents.answer_file)
    machine.registry.write(IMAGE_STATE, "ImageState", Value("String", SEALED))
    if agents.state and machine.registry.has_key(agents.state):
        machine.registry.remove_key(agents.state)
    in_use = machine.services.programs_in_use()
    for path in list(_list_leftovers(machine, agents)):
        if machine.files.exists(path) and not any(
            file == fold(path) or file.startswith(fold(path) + "\\") for file in in_use
        ):
            machine.files.remove(path)
    machine.files.write(CACHED_ANSWERS, answers)
    _clear_listeners(machine)


def _list_leftovers(machine: Machine, agents: Agents) -> Iterator[str]:
    """The files and folders that sealing deletes, if no service runs from them."""
    files = machine.files
    for folder in (*_EMPTIED, *(rf"{_USERS}\{name}\AppData\Local\Temp" for name in files.names(_USERS)), agents.logs):
        if folder and files.is_folder(folder):
            yield from files.below(folder)
    for above, pattern in agents.left_folders:
        for name in files.names(above.rstrip("\\")) if files.is_folder(above.rstrip("\\")) else ():
            if fnmatch.fnmatchcase(name.lower(), pattern.lower()):
                yield rf"{above.rstrip(chr(92))}\{name}"
    yield from (rf"{HOME}\{name}" for name in files.names(HOME) if fold(rf"{HOME}\{name}") != fold(_RECORD))
    yield from ANSWER_FILES
    if files.is_folder(r"C:\ProgramData\ssh"):
        names = files.names(r"C:\ProgramData\ssh")
        yield from (rf"C:\ProgramData\ssh\{name}" for name in names if name.startswith("ssh_host_"))


def _clear_listeners(machine: Machine) -> None:
    """Remove the listeners, and list their certificates, which first boot deletes."""
    keys = [f"{LISTENERS}\\{name}" for name in machine.registry.subkeys(LISTENERS)]
    prints = [(machine.registry.text(key, "certThumbprint") or "").replace(" ", "") for key in keys]
    machine.files.make_folder(SETUP_SCRIPTS)
    lines = "".join(f"{text}\r\n" for text in prints if text)
    machine.files.write(f"{SETUP_SCRIPTS}\\certificates.txt", lines.encode())
    for key in keys:
        machine.registry.remove_key(key)


def find_sealing_losses(machine: Machine, plan: bytes) -> list[str]:
    """A fault for each resource of plan.json that is no longer as planned, or whose program or folder is gone."""
    return [
        f"sealing undid {item.id}: {'; '.join(reasons)}"
        for item in items_of(read_plan(plan))
        if item.resource.outlives_sealing
        and not item.repeated
        and (
            reasons := [
                *find_differences(machine, item),
                *(f"{path} is gone" for path in item.resource.needs() if not machine.files.exists(path)),
            ]
        )
    ]


def print_logs(machine: Machine) -> Outcome:
    """The logs as lines, in the form that the host reads."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for above, folder in _LOGS:
            for name in machine.files.names(folder) if machine.files.is_folder(folder) else ():
                if name.endswith(".log"):
                    archive.writestr(f"{above}/{name}", machine.files.read(rf"{folder}\{name}"))
        archive.writestr("notes.txt", "")
    data = buffer.getvalue()
    text = base64.b64encode(data).decode("ascii")
    parts = [text[at : at + _LINE_LENGTH] for at in range(0, len(text), _LINE_LENGTH)]
    lines = (f"begin {len(data)} {hashlib.sha256(data).hexdigest()}", *parts, "end")
    return Outcome(0, "".join(f"imagegen-logs: {line}\r\n" for line in lines))
